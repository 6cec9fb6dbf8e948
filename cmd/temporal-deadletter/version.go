package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  " + name + " version",
		RunE:    func(*cobra.Command, []string) error { return c.printVersion() },
	}
}

func (c *cli) printVersion() error {
	version := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	if c.output != outputText {
		return c.printJSON(struct {
			Version string `json:"version"`
			Go      string `json:"go"`
		}{version, runtime.Version()})
	}
	_, err := fmt.Fprintf(c.out, "%s %s (%s)\n", name, version, runtime.Version())
	return err
}
