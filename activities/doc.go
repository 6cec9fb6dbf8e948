// Package activities holds the activities behind deadletter.Job and the
// operator workflow, and the interceptor that runs around every handler.
//
// Move, Replay and Purge need a dlqstore.Store and are served on the
// dead-letter task queue only. StartDelay and the interceptor belong to the
// workers that run jobs, which need no Postgres.
package activities
