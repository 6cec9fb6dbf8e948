// Package devstack starts a real Temporal dev server and a real, throw-away
// Postgres on this machine: for `deadletter dev` and for tests.
//
// [Start] starts both, [StartTemporal] and [StartPostgres] one of them. Both
// listen on 127.0.0.1 and on free ports only, keep everything in a temporary
// folder, and lose all of it when they stop. The Temporal binary is found or
// built by [TemporalCLI]; Postgres is what the machine has installed. Package
// devtest shares one of each between the tests of a test binary.
//
// Nothing outlives the process that called Start. Stop is the orderly way. If
// the process ends without it (a panic, os.Exit, Ctrl-C, kill -9), the small
// shell which runs each server sees its control pipe close, stops the server
// and removes the folder. A folder left by a machine that went down is removed
// by the next start.
//
// It works as root, where Postgres is run as an unprivileged account, and as an
// ordinary account with no home folder. It needs /bin/sh, so not Windows.
package devstack
