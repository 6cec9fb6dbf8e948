// Package operator has the verbs that people and tools use on dead letters:
// list, show, groups, export, replay, purge and stats. It needs a store and a Temporal client,
// and neither the handlers' code nor the key of a codec: payloads go out as they
// came in.
package operator
