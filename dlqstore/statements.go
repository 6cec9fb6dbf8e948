package dlqstore

// statements is every statement of the store as written, with schemaMarker for
// the schema. Open qualifies them once; a test prepares each one. Lists, counts and
// groups have the conditions of a Filter added, see filter.go.
var statements = []string{
	selectVersion,
	insertMoveEvent, insertDeadLetter, insertAttempts,
	selectDeadLetter, selectRuns, selectAttempts, selectReplays, selectEvents,
	selectList, selectWithPayloads, selectCount,
	selectTotal, selectTallyOfTypes, selectTallyOfQueues, selectTallyOfReasons, selectTrend, selectOldest,
	tryCompact, compactDeadLetters, compactEvents, ensureErrorTextIndex,
	sizesOfSummary, sizesOfTable, sizesOfTableEnd, groupsTop, groupsOldest, groupsEnd,
	lockDeadLetter, selectReplay, insertReplay, countReplay, insertReplayEvent,
	confirmReplay, refuseReplay, uncountReplay, selectPendingReplays,
	settleReplay, insertSettleEvent, supersedeDeadLetters,
	selectUnmoved, selectSweep, advanceSweep,
	purgeOne, purgeVictims, purgeSelected,
}
