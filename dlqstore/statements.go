package dlqstore

// statements is every statement of the store as written, with schemaMarker for
// the schema. Open qualifies them once; a test prepares each one. Lists, counts and
// groups have the conditions of a Filter added, see filter.go; what prunes has those
// of a policy in it, see governed.go.
var statements = []string{
	selectVersion, selectRights, lockMigrations, selectSchemaExists, selectVersionExists, updateVersion,
	moveDeadLetter,
	selectDeadLetter, selectRuns, selectRequestKeys, selectAttempts, selectReplays, selectEvents,
	selectList, selectWithPayloads, selectCount, selectSpans,
	selectTotal, selectTallyOfTypes, selectTallyOfQueues, selectTallyOfReasons, selectTrend, selectOldest,
	tryCompact, compactDeadLetters, compactEvents, ensureErrorTextIndex,
	sizesOfSummary, sizesOfTable, sizesOfTableEnd, groupsTop, groupsOldest, groupsEnd,
	lockDeadLetter, selectReplay, insertReplay, countReplay, insertReplayEvent,
	confirmReplay, refuseReplay, uncountReplay, selectPendingReplays,
	settleReplay, insertSettleEvent, supersedeDeadLetters,
	selectUnmoved, selectSweep, advanceSweep, upsertLeft, selectDueLeft, selectLeft, countLeft, deleteLeft,
	countCancelledMoves,
	selectRevisionOf, selectLastRevision, insertRevision, updateDeadLetter, insertEditEvent, selectContentAt, selectRevisions,
	lockRequest, insertRefusal, selectAudit, insertNote, insertGroupNote, selectRequestedNote, insertNoteEvent, selectNotes, selectGroupNotes, selectAncestors, selectDescendants,
	startingReplay, lockForPurge, lockVictims, lockVictimsEnd, purgeLocked, selectPurged,
	replayedForGood, selectRequestedPlan, insertPlan, freezeChosen, freezeMembers, countPlanMembers, selectPlanGroups, selectPlanSample, storePlanReport, insertPlanEvent,
	selectPlan, selectPlans, selectPlanItems, selectPlanCauses, selectPlanQueues, lockPlan, applyPlan, markPlan, leaveMembers,
	selectOldPlan, forgetMembers, forgetPlan,
	selectMemberLetters, storePreviews,
	selectMembers, endMembers, lockMembers,
	selectReplaysOf, insertReplays, countReplays, insertReplayEvents, confirmReplays, selectBegun, selectReplayedMembers, selectOutcomes,
	selectPolicies, upsertPolicy, deletePolicy, insertPolicyEvent,
	heldDeadLetter, whereTooMany, wherePastLast, lockPrunable, deletePruned, selectPruned, countDue, sampleDue,
	pinDeadLetter, unpinDeadLetter, insertJobEvent,
}
