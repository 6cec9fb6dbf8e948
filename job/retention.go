package job

// PruneOutput is what one activity deadletter.Prune did, and the result of a
// retention run: its sum.
type PruneOutput struct {
	// Pruned counts the dead letters that are gone, by the name of the policy,
	// without those of an activity that was killed.
	Pruned map[string]int64 `json:"pruned,omitempty"`
	// Done is false when there may be more.
	Done bool `json:"done"`
}

// Plus returns the sum, done when next is.
func (o PruneOutput) Plus(next PruneOutput) PruneOutput {
	sum := PruneOutput{Pruned: map[string]int64{}, Done: next.Done}
	for _, part := range []PruneOutput{o, next} {
		for _, policy := range sortedKeys(part.Pruned) { // workflow code: nothing may hang on a map's order
			sum.Pruned[policy] += part.Pruned[policy]
		}
	}
	return sum
}
