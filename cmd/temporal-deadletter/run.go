package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

// name is the program's, in messages and help.
const name = "temporal-deadletter"

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // the command line must change
)

// usageError is a fault of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// cli is one run of the program.
type cli struct {
	environ   []string
	in        io.Reader
	out, errw io.Writer

	overrides connect.Overrides
	output    output

	noting  sync.Mutex  // of errw, where goroutines of a verb write too
	limited atomic.Bool // the server has refused requests for its limits
}

// run executes the command line args in the environment environ (as of
// os.Environ) and returns the exit code. A reader with a method IsTerminal that
// says true may be asked questions; such an output may be drawn on, and tells how
// large it is if it has a method Size.
func run(ctx context.Context, args, environ []string, in io.Reader, out, errw io.Writer) int {
	c := &cli{environ: environ, in: in, out: out, errw: errw, output: outputText}
	root := c.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(errw, "%s: %s\n", name, message(ctx, err))
	usage := usageError{}
	if errors.As(err, &usage) || errors.Is(err, connect.ErrNoDatabase) || errors.Is(err, connect.ErrSetting) || errors.Is(err, dlqstore.ErrBadCursor) {
		return exitUsage
	}
	return exitFailed
}

// message is the one line that tells a person what is wrong and what to do.
func message(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "interrupted"
	}
	mend := ""
	switch {
	case errors.Is(err, dlqstore.ErrAmbiguous):
		mend = "; pass it with -r"
	case errors.Is(err, dlqstore.ErrNotFound):
		mend = "; see `" + name + " list`, and whether --namespace is the right one, or `" + name + " events -w ID`, if it may have been purged"
	case errors.Is(err, dlqstore.ErrTimeout):
		mend = "; see that the database answers, or narrow the filter"
	case errors.Is(err, dlqstore.ErrConflict):
		mend = "; see it with `" + name + " show`, and edit that"
	case errors.Is(err, dlqstore.ErrBusy):
		mend = "; purge it when that is done, in some seconds"
	case errors.Is(err, dlqstore.ErrBadCursor):
		mend = "; start again without --cursor"
	}
	// Which package of ours says it is of no use to a person.
	return oneLine(strings.TrimPrefix(err.Error(), "operator: ")) + mend
}

// oneLine joins the lines of a text with semicolons, and makes it safe to print.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	return printable(strings.Join(slices.Compact(lines), "; ")) // Postgres is tried twice, with TLS and without
}

func (c *cli) rootCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   name,
		Short: "Find, understand, edit, replay and purge the dead letters of Temporal jobs",
		Long: "Find, understand, edit, replay and purge the dead letters of Temporal jobs.\n\n" +
			"Settings come from flags, else from the environment (TEMPORAL_ADDRESS and the like,\n" +
			"DEADLETTER_DATABASE_URL, DEADLETTER_SCHEMA, DEADLETTER_TASK_QUEUE, DEADLETTER_UI_URL), else\n" +
			"from a profile of Temporal's configuration file. Exit codes: 0 done, 1 failed, 2 wrong usage.",
		Example: "  " + name + " dev                     # see all of it work, on servers of its own\n" +
			"  " + name + " groups                  # what died, by cause\n" +
			"  " + name + " list --reason timeout\n" +
			"  " + name + " replay -w order-4711",
		SilenceErrors: true,
		SilenceUsage:  true,
		// How many letters may be wrong for a verb to be suggested.
		SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("there is no verb %q%s; see `%s --help`", args[0], hint, name)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return c.printVersion()
			}
			return usagef("name a verb: %s; see `%s --help`", strings.Join(verbs(cmd), ", "), name)
		},
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.errw)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see `%s --help`", err, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.Flags().BoolVar(&version, "version", false, "print the version, as the verb does")

	// Of the root, so that they may stand before the verb: the Temporal CLI puts
	// those that it knows itself there.
	flags := root.PersistentFlags()
	flags.StringVar(&c.overrides.Address, "address", "", "Temporal server, host:port (TEMPORAL_ADDRESS)")
	flags.StringVar(&c.overrides.Namespace, "namespace", "", "Temporal namespace (TEMPORAL_NAMESPACE)")
	flags.StringVar(&c.overrides.Profile, "profile", "", "profile of Temporal's configuration file (TEMPORAL_PROFILE)")
	flags.StringVar(&c.overrides.DatabaseURL, "database-url", "", "Postgres with the dead letters (DEADLETTER_DATABASE_URL, DATABASE_URL)")
	flags.StringVar(&c.overrides.Schema, "schema", "", "its schema (DEADLETTER_SCHEMA, default \"deadletter\")")
	flags.StringVar(&c.overrides.TaskQueue, "task-queue", "", "task queue of the dead-letter activities (DEADLETTER_TASK_QUEUE, default \"deadletter\"); dev and apply use it")
	flags.StringVar(&c.overrides.UIURL, "ui-url", "", "the Temporal UI, such as http://localhost:8233, for addresses of jobs (DEADLETTER_UI_URL)")
	flags.VarP(&c.output, "output", "o", "text, json or jsonl")

	root.AddCommand(
		c.listCommand(), c.groupsCommand(), c.showCommand(), c.exportCommand(), c.editCommand(), c.replayCommand(), c.purgeCommand(),
		c.planCommand(), c.applyCommand(), c.noteCommand(), c.eventsCommand(), c.statsCommand(), c.watchCommand(),
		c.jobsCommand(), c.retentionCommand(), c.pinCommand(), c.unpinCommand(), c.reconcileCommand(),
		c.migrateCommand(), c.devCommand(), c.versionCommand(),
	)
	for _, verb := range root.Commands() {
		if verb.Args == nil {
			verb.Args = noArguments
		}
	}
	return root
}

func verbs(root *cobra.Command) []string {
	var names []string
	for _, verb := range root.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	return names
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument, and %q is one; see `%s --help`", cmd.Name(), args[0], cmd.CommandPath())
	}
	return nil
}

// config reads the settings.
func (c *cli) config() (*connect.Config, error) {
	config, err := connect.Load(c.environ, c.overrides)
	if err != nil {
		return nil, usageError{err}
	}
	return config, nil
}
