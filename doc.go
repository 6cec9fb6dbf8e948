// Package deadletter turns Temporal into a job queue with a dead-letter queue in
// Postgres.
//
// A job is one execution of workflow deadletter.Job. It runs one activity of
// yours, its handler, with the retries that the job's Policy says. A job that
// succeeds leaves nothing behind but its own history. When automatic execution
// should stop, the job's final state is moved into Postgres in one transaction,
// where people list it, read it, replay it and purge it.
//
// One plugin object serves client and workers:
//
//	store, err := dlqstore.Open(ctx, databaseURL)
//	plugin, err := deadletter.NewPlugin(deadletter.Options{Store: store})
//	c, err := client.Dial(client.Options{Plugins: []client.Plugin{plugin}})
//
// Every worker made from c then runs jobs. A worker on DefaultTaskQueue also
// serves the dead-letter activities; only that one needs the Store.
package deadletter
