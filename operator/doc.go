// Package operator has the verbs that people and tools use on dead letters:
// list, show, replay, purge, stats and retention, and on jobs that are still live:
// jobs, retry-now and cancel. It needs a store and a Temporal client, and neither
// the handlers' code nor the key of a codec: payloads go out as they came in.
package operator
