// Package operator has the verbs that people and tools use on dead letters:
// list, show, groups, export, stats, edit, note, replay, purge and retention, plans
// for many of them, and on jobs that are still live: jobs, retry-now and cancel. It
// needs a store and a Temporal client, and neither the handlers' code nor the key of
// a codec: payloads go out as they came in.
package operator
