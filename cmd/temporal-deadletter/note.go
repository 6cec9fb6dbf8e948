package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/operator"
)

func (c *cli) noteCommand() *cobra.Command {
	var key keyFlags
	var actor actorFlag
	var fingerprint string
	cmd := &cobra.Command{
		Use:   "note TEXT",
		Short: "Keep a note on a dead letter, or on all of one fingerprint",
		Long: "Keep a note on a dead letter, or on all of one fingerprint, for whoever looks next: show\n" +
			"tells of it. It needs Postgres only. A dead letter's notes are purged with it.",
		Example: "  " + name + ` note -w order-4711 "the customer was refunded; do not replay"` + "\n" +
			"  " + name + ` note --fingerprint 3f9a1c5e07b2d846 "bad deploy of 2026-11-30, mended in 1.4.2"`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usagef("note takes one text, and %d are given: put it in quotes", len(args))
			case (key.workflowID == "") == (fingerprint == ""):
				return usagef("say what the note is on: -w WORKFLOW_ID or --fingerprint, one of them")
			case key.runID != "" && key.workflowID == "":
				return usagef("-r names a run of the workflow id that -w gives: pass -w too")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			who, err := actor.name()
			if err != nil {
				return err
			}
			store, config, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer store.Close()
			note, err := operator.NoteStored(cmd.Context(), store, config.Temporal.Namespace, operator.NoteRequest{
				WorkflowID: key.workflowID, RunID: key.runID, Fingerprint: fingerprint, Text: args[0], Actor: who,
			})
			if err != nil {
				return err
			}
			if c.output != outputText {
				return c.printJSON(note)
			}
			on := key.workflowID
			if fingerprint != "" {
				on = "all dead letters with fingerprint " + fingerprint
			}
			_, err = fmt.Fprintf(c.out, "Noted on %s.\n", printable(on))
			return err
		},
	}
	key.add(cmd)
	actor.add(cmd)
	cmd.Flags().StringVar(&fingerprint, "fingerprint", "", "fingerprint whose dead letters the note is on")
	return cmd
}
