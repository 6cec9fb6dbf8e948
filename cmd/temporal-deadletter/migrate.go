package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (c *cli) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Create the tables of the dead letters, or upgrade them",
		Long: "Create the schema and its tables, or upgrade them to this version. It only adds, and may\n" +
			"be run again and by several processes at once.",
		Example: "  " + name + " migrate --database-url postgres://app@db.example.com/app\n" +
			"  " + name + " migrate --schema deadletter_test",
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := c.config()
			if err != nil {
				return err
			}
			existed, err := config.SchemaExists(cmd.Context())
			if err != nil {
				return err
			}
			if err := config.Migrate(cmd.Context()); err != nil {
				return err
			}
			if c.output != outputText {
				return c.printJSON(struct {
					Schema   string `json:"schema"`
					Database string `json:"database"`
					Created  bool   `json:"created"`
				}{config.Schema, config.Database(), !existed})
			}
			state := "is up to date"
			if !existed {
				state = "was created"
			}
			_, err = fmt.Fprintf(c.out, "Schema %s of %s %s.\n", printable(config.Schema), printable(config.Database()), state)
			return err
		},
	}
}
