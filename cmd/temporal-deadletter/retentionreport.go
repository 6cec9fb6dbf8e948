package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

// noSuchPolicy has a mend of its own: the usual one is about dead letters.
func noSuchPolicy(err error) error {
	if errors.Is(err, dlqstore.ErrNotFound) {
		return fmt.Errorf("%s; see `%s retention list`", err.Error(), name)
	}
	return err
}

// printPruneReports says what would go, and where.
func printPruneReports(w io.Writer, config *connect.Config, reports []dlqstore.PruneReport) error {
	for i := range reports {
		r := &reports[i]
		if i > 0 {
			fmt.Fprintln(w)
		}
		rows := [][]string{
			{"Policy", printable(r.Policy.Name)},
			{"Namespace", printable(config.Temporal.Namespace)},
			{"Database", printable(config.Database()) + ", schema " + printable(config.Schema)},
			{"Governs", selectsText(&r.Policy)},
			{"Keeps", keepsText(&r.Policy)},
			{"Would go now", counted(r.WouldPrune) + ", for good"},
		}
		if r.WouldPrune > 0 {
			rows = append(rows, []string{"Dead between", timeText(r.Oldest) + " and " + timeText(r.Newest)})
		}
		if r.Pinned > 0 {
			rows = append(rows, []string{"Pinned, stay", strconv.FormatInt(r.Pinned, 10)})
		}
		if r.Held > 0 {
			rows = append(rows, []string{"Held, stay", strconv.FormatInt(r.Held, 10) + " for now, by a plan or a replay"})
		}
		if err := table(w, rows); err != nil {
			return err
		}
		if err := printPruneDetail(w, r); err != nil {
			return err
		}
	}
	return nil
}

func printPruneDetail(w io.Writer, r *dlqstore.PruneReport) error {
	if r.WouldPrune == 0 {
		return nil
	}
	rows := [][]string{{"  COUNT", "TYPE", "REASON"}}
	for _, group := range r.Groups {
		rows = append(rows, []string{"  " + strconv.FormatInt(group.Count, 10), orNone(group.JobType), string(group.Reason)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	if r.MoreGroups {
		fmt.Fprintf(w, "  and more types and reasons than these %d\n", len(r.Groups))
	}
	fmt.Fprintln(w, "The first to go")
	rows = nil
	for _, row := range r.Sample {
		rows = append(rows, []string{"  " + timeText(&row.DeadAt), string(row.Reason), orNone(row.JobType), printable(row.WorkflowID)})
	}
	return table(w, rows)
}

func selectsText(p *dlqstore.RetentionPolicy) string {
	if p.SelectsAll() {
		return "everything that no other policy governs"
	}
	filter := dlqstore.Filter{JobType: p.JobType, Reason: p.Reason}
	if p.TagKey != "" {
		filter.Tags = map[string]string{p.TagKey: p.TagValue}
	}
	return describe(filter)
}

func keepsText(p *dlqstore.RetentionPolicy) string {
	switch {
	case p.KeepLast == 0:
		return spanText(p.KeepFor)
	case p.KeepFor == 0:
		return fmt.Sprintf("the last %d", p.KeepLast)
	default:
		return fmt.Sprintf("%s, and no more than the last %d", spanText(p.KeepFor), p.KeepLast)
	}
}

// policyJSON is a policy with what it removed in the last 24 hours.
type policyJSON struct {
	Policy dlqstore.RetentionPolicy `json:"policy"`
	Pruned int64                    `json:"pruned_24h"`
}

func (c *cli) printPolicies(policies []dlqstore.RetentionPolicy, pruned []dlqstore.PolicyPruned) error {
	counts := map[string]int64{}
	for _, p := range pruned {
		counts[p.Policy] = p.Pruned
	}
	listed := make([]policyJSON, len(policies))
	for i := range policies {
		listed[i] = policyJSON{policies[i], counts[policies[i].Name]}
	}
	switch c.output {
	case outputJSON:
		return c.printJSON(struct {
			Policies  []policyJSON            `json:"policies"`
			Pruned24h []dlqstore.PolicyPruned `json:"pruned_24h"` // by policies that are no more, too
		}{listed, notNil(pruned)})
	case outputJSONL:
		for i := range listed {
			if err := c.printJSON(&listed[i]); err != nil {
				return err
			}
		}
		return nil
	case outputText:
	}
	if len(policies) == 0 {
		_, err := fmt.Fprintf(c.out, "There is no policy: dead letters are kept until they are purged. See `%s retention set --help`.\n", name)
		return err
	}
	rows := [][]string{{"NAME", "GOVERNS", "KEEPS", "STATE", "REMOVED IN 24H", "SET BY", "SET AT"}}
	for i := range listed {
		p := &listed[i].Policy
		state := "enabled"
		if !p.Enabled {
			state = "disabled"
		}
		rows = append(rows, []string{
			printable(p.Name), selectsText(p), keepsText(p), state, strconv.FormatInt(listed[i].Pruned, 10), orNone(p.Actor), timeText(&p.UpdatedAt),
		})
	}
	return listTable(c.out, rows)
}
