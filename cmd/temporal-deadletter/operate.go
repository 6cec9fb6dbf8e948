package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/user"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/operator"
)

// silent is the logger of the SDK: what went wrong is said once, by the verb.
var silent = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

// session is an operator with its connections, for the verbs that need both
// servers.
type session struct {
	*operator.Operator
	config *connect.Config
	store  *dlqstore.Store
	client client.Client
}

func (c *cli) connect(ctx context.Context) (*session, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return c.open(ctx, config)
}

// storeOf opens the settings' store, and says so when another build has migrated it
// further than this one knows. That is no fault, for migrations only add.
func (c *cli) storeOf(ctx context.Context, config *connect.Config) (*dlqstore.Store, error) {
	store, err := config.OpenStore(ctx)
	if err == nil {
		if have, need := store.Version(); have > need {
			fmt.Fprintf(c.errw, "%s: schema %q is at version %d and this build knows %d: all goes on as before; use a newer build to have what is new\n",
				name, printable(store.Schema()), have, need)
		}
	}
	return store, err
}

func (c *cli) open(ctx context.Context, config *connect.Config) (*session, error) {
	store, err := c.storeOf(ctx, config)
	if err != nil {
		return nil, err
	}
	connected, err := config.Dial(ctx, silent)
	if err != nil {
		store.Close()
		return nil, err
	}
	verbs, err := operator.New(operator.Config{
		Store: store, Client: connected, Namespace: config.Temporal.Namespace, TaskQueue: config.TaskQueue, UIURL: config.UIURL,
		OnLimited: c.sayLimited,
	})
	if err != nil {
		connected.Close()
		store.Close()
		return nil, err
	}
	return &session{Operator: verbs, config: config, store: store, client: connected}, nil
}

// openStore is for the verbs that need Postgres alone. The caller closes the store.
func (c *cli) openStore(ctx context.Context) (*dlqstore.Store, *connect.Config, error) {
	config, err := c.config()
	if err != nil {
		return nil, nil, err
	}
	store, err := c.storeOf(ctx, config)
	return store, config, err
}

// withStore runs fn on the settings' store alone.
func (c *cli) withStore(ctx context.Context, fn func(*dlqstore.Store, *connect.Config) error) error {
	store, config, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	return fn(store, config)
}

func (s *session) close() {
	s.client.Close()
	s.store.Close()
}

// keyFlags name one job.
type keyFlags struct{ workflowID, runID string }

func (k *keyFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&k.workflowID, "workflow-id", "w", "", "workflow id of the job")
	cmd.Flags().StringVarP(&k.runID, "run-id", "r", "", "its run id; needed when several runs of the id are dead letters")
}

// addLive is add for a verb on a live job.
func (k *keyFlags) addLive(cmd *cobra.Command) {
	k.add(cmd)
	cmd.Flags().Lookup("run-id").Usage = "its run id (default: that of the current run)"
}

// arguments lets the workflow id be an argument as well as a flag.
func (k *keyFlags) arguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usagef("%s takes one workflow id, not %d; see `%s --help`", cmd.Name(), len(args), cmd.CommandPath())
	case len(args) == 1 && k.workflowID != "" && k.workflowID != args[0]:
		return usagef("%s takes one workflow id, and both %q and %q are given", cmd.Name(), k.workflowID, args[0])
	case len(args) == 1:
		k.workflowID = args[0]
	}
	if k.workflowID == "" {
		return usagef("name the job: %s -w WORKFLOW_ID", cmd.CommandPath())
	}
	return nil
}

// actorFlag says who acts.
type actorFlag struct{ actor string }

func (a *actorFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.actor, "actor", "", "who asks, for the audit (default: your user name)")
}

func (a *actorFlag) name() (string, error) {
	if a.actor != "" {
		return a.actor, nil
	}
	current, err := user.Current()
	if err != nil || current.Username == "" {
		return "", usagef("this account has no user name: say who asks with --actor")
	}
	return current.Username, nil
}
