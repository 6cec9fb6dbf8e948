// Package job says what a job is: the options object that travels as its first
// workflow argument, its retry policy, the closed sets of reasons and statuses,
// and the messages between the job's workflow and the dead-letter activities.
//
// It is the leaf of the module: pure values, no I/O, no Postgres, no Temporal
// client, safe to import from workflow code. Package deadletter re-exports what
// an application needs.
package job
