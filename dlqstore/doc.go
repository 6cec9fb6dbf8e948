// Package dlqstore keeps dead letters in Postgres: the table that people list,
// inspect, replay and purge, beside the attempts, the replays and the audit
// events that belong to each.
//
// [Migrate] creates and upgrades the schema; [Open] returns a [Store] on it.
//
// What the store promises:
//
//   - A job is moved once. [Store.Move] writes the dead letter, its attempts, an
//     event and whatever the caller's [Hook] writes in one transaction, and a
//     second move of the same key writes nothing, also after a purge.
//   - A replay request is idempotent by its request id, whatever crashed between
//     [Store.BeginReplay] and [Store.ConfirmReplay].
//   - Payloads are kept byte for byte. Text that Postgres cannot hold is made
//     holdable; a JSON copy that Postgres cannot hold is left out.
//   - A plan changes what it froze and nothing else, and each of its members once,
//     see [Store.CreatePlan].
//   - Every mutation writes an event with its actor in the same transaction.
//   - Counts and groups are exact at any moment and do not read the table: triggers
//     keep a summary, whoever writes, and [Store.Compact] keeps it small.
//   - Every operation is bounded in time, see [WithTimeout].
//   - The search path of the role, the database or the URL does not change what a
//     statement does. A hook's own SQL has that search path.
//   - It works through a pooler in transaction mode: nothing that a later transaction
//     needs, or trips over, is left in a session.
//
// Each write has a Tx form for callers who bring a transaction. It expects READ
// COMMITTED; under a stricter level a concurrent duplicate ends in a
// serialization failure, to be retried by the caller. The bounds in time and the search
// path are then the caller's too.
//
// Most callers want package operator, which needs no more than these: [Open],
// [Migrate], the filters, and the types of rows. What moves, begins, confirms, settles
// and ends things is for the workers of the dead-letter queue.
//
// Table events marks each moved job with its move event: that row is what keeps a
// purged job purged. A program that prunes events must spare those of verb move.
package dlqstore
