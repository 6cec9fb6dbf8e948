// Package workflows holds the project's workflow code and nothing else: it is
// deterministic, does no I/O, and calls activities by their wire names.
//
// A change that alters the commands of a running job needs workflow.GetVersion
// and a recorded history in the testsuite; a history on disk is never edited.
package workflows
