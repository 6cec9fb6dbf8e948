package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

func (c *cli) migrateCommand() *cobra.Command {
	var repair bool
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Create the tables of the dead letters, or upgrade them",
		Long: "Create the schema and its tables, or upgrade them to this version. It only adds, and may\n" +
			"be run again and by several processes at once. It says if the database's encoding is not\n" +
			"UTF8, and fails if a table's numbering is behind its rows, as after a cut-over by logical\n" +
			"replication: --repair-sequences sets it right.",
		Example: "  " + name + " migrate --database-url postgres://app@db.example.com/app\n" +
			"  " + name + " migrate --schema deadletter_test\n" +
			"  " + name + " migrate --repair-sequences",
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			before, err := config.Inspect(cmd.Context())
			if err != nil {
				return err
			}
			if err := config.Migrate(cmd.Context()); err != nil {
				return err
			}
			inspection, err := config.Inspect(cmd.Context())
			if err != nil {
				return err
			}
			if inspection.Encoding != "UTF8" {
				fmt.Fprintf(c.errw, "%s: the database's encoding is %s: a character that it cannot hold is kept as an escape, such as \\u65e5, and arguments with one may have no readable copy; a database of encoding UTF8 holds every text\n",
					name, printable(inspection.Encoding))
			}
			repaired := []dlqstore.Sequence{}
			if repair {
				if repaired, err = config.RepairSequences(cmd.Context()); err != nil {
					return err
				}
			} else if len(inspection.Behind) > 0 {
				return fmt.Errorf("the schema is up to date, but %s: inserts will fail; run `%s migrate --repair-sequences` when nothing is replicated into this database any more", inspection.Behind[0], name)
			}
			return c.printMigrated(config, !before.Migrated, inspection.Encoding, repaired)
		},
	}
	command.Flags().BoolVar(&repair, "repair-sequences", false, "number new rows behind those that are there; inserts wait meanwhile")
	return command
}

func (c *cli) printMigrated(config *connect.Config, created bool, encoding string, repaired []dlqstore.Sequence) error {
	if c.output != outputText {
		return c.printJSON(struct {
			Schema   string              `json:"schema"`
			Database string              `json:"database"`
			Created  bool                `json:"created"`
			Encoding string              `json:"encoding"`
			Repaired []dlqstore.Sequence `json:"repaired"`
		}{config.Schema, config.Database(), created, encoding, repaired})
	}
	state := "is up to date"
	if created {
		state = "was created"
	}
	if _, err := fmt.Fprintf(c.out, "Schema %s of %s %s.\n", printable(config.Schema), printable(config.Database()), state); err != nil {
		return err
	}
	for _, s := range repaired {
		if _, err := fmt.Fprintf(c.out, "The next %s of table %s is %d, and was %d.\n", s.Column, s.Table, s.Highest+1, s.Next); err != nil {
			return err
		}
	}
	return nil
}
