package dlqstore

// statements is every statement of the store as written, with schemaMarker for
// the schema. Open qualifies them once; a test prepares each one. Lists and counts
// have the conditions of a Filter appended, see filter.go.
var statements = []string{
	selectVersion,
	insertMoveEvent, insertDeadLetter, insertAttempts,
	selectDeadLetter, selectRuns, selectAttempts, selectReplays, selectEvents,
	selectList, selectCount,
	lockDeadLetter, selectReplay, insertReplay, countReplay, insertReplayEvent,
	confirmReplay, refuseReplay, uncountReplay, selectPendingReplays,
	settleReplay, insertSettleEvent, supersedeDeadLetters,
	selectUnmoved, selectSweep, advanceSweep,
	purgeOne, selectPurged, purgeVictims, purgeSelected,
}
