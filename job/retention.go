package job

import "time"

// PruneOutput is what one activity deadletter.Prune did, and the result of a
// retention run: its sum.
type PruneOutput struct {
	// Pruned counts the dead letters that are gone, by the name of the policy,
	// without those of an activity that was killed.
	Pruned map[string]int64 `json:"pruned,omitempty"`
	// Done is false when there may be more.
	Done bool `json:"done"`
	// Begun, Every and Again are those of a SweepState.
	Begun bool          `json:"begun,omitempty"`
	Every time.Duration `json:"every,omitempty"`
	Again bool          `json:"again,omitempty"`
}

// Plus returns the sum, which stands where next does.
func (o PruneOutput) Plus(next PruneOutput) PruneOutput {
	sum := PruneOutput{Pruned: map[string]int64{}, Done: next.Done, Begun: next.Begun, Every: next.Every}
	for _, part := range []PruneOutput{o, next} {
		for _, policy := range sortedKeys(part.Pruned) { // workflow code: nothing may hang on a map's order
			sum.Pruned[policy] += part.Pruned[policy]
		}
	}
	return sum
}
