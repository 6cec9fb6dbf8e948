package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

const (
	// defaultNamespace exists on every dev server.
	defaultNamespace = "default"
	// temporalReady bounds the wait for a started server: a third of a second on
	// an idle machine, much longer when a cold binary of 250 MB meets a busy disk.
	temporalReady = 5 * time.Minute
	// existingReady bounds the look at a server that should be running.
	existingReady = 20 * time.Second
)

// dynamicConfig lifts the limits that a test of some hundred jobs, or a slow machine,
// would meet.
var dynamicConfig = []string{
	"frontend.rps=100000",                   // 2,400 calls per second
	"frontend.namespaceRPS=100000",          // 2,400 per namespace
	"frontend.namespaceRPS.visibility=1000", // 100 lists and counts per second
	"frontend.namespaceCount=20000",         // 1,200 long polls and queries at a time
	// A task that is handed straight to a waiting worker is lost when the server
	// takes more than a second to note its start, as a busy one does. One that goes
	// through the backlog has ten.
	`matching.syncMatchWaitDuration="0s"`,
	// A search attribute works at once, not after the next cache refresh.
	"system.forceSearchAttributesCacheRefreshOnRead=true",
	// A worker deployment version is drained some seconds after its last workflow, not
	// after minutes.
	`matching.wv.VersionDrainageStatusVisibilityGracePeriod="2s"`,
	`matching.wv.VersionDrainageStatusRefreshInterval="2s"`,
}

// TemporalOptions says how to start a Temporal dev server. The zero value works.
type TemporalOptions struct {
	// Log receives progress lines for people. Nil means none.
	Log io.Writer
	// Namespace exists when the server is ready. Empty means "default", which
	// exists in any case.
	Namespace string
	// Namespaces are others that exist from the start. One that is registered later
	// can be forgotten again for some seconds, by a refresh of the server's cache that
	// began before, and its tasks of that time are dropped.
	Namespaces []string
	// UI serves Temporal's web UI too.
	UI bool
	// UIPort is where; it must be free. Zero means a free one.
	UIPort int
	// SearchAttributes are registered in every namespace: name to type.
	SearchAttributes map[string]enums.IndexedValueType
	// DynamicConfig are settings of the server, such as "frontend.namespaceRPS=15",
	// over those that it is started with anyway.
	DynamicConfig []string
}

// Temporal is a running dev server. Its database is in memory.
type Temporal struct {
	// Address of the gRPC frontend, as host:port.
	Address string
	// UIURL is empty without the UI.
	UIURL string

	stop func() error
}

// StartTemporal starts a dev server. It returns when the server executes
// workflows in the namespace. ctx bounds the start, not the life of the server.
// On an error nothing is left, neither processes nor files. The first start on a
// machine may build the binary, which takes minutes: see [TemporalCLI].
func StartTemporal(ctx context.Context, opts TemporalOptions) (*Temporal, error) {
	if opts.Namespace == "" {
		opts.Namespace = defaultNamespace
	}
	cli, err := TemporalCLI(ctx, opts.Log)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	dir, err := newTempDir(os.TempDir(), "temporal", nil)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		t, err := runTemporal(ctx, cli, dir, opts)
		if err == nil {
			say(opts.Log, "Temporal is ready on %s (%s, from %s)", t.Address, time.Since(began).Round(time.Millisecond), cli)
			return t, nil
		}
		if attempt == startAttempts || !errors.Is(err, errEnded) {
			return nil, errors.Join(err, dir.remove())
		}
	}
}

// runTemporal starts the server once, on ports that are free now.
func runTemporal(ctx context.Context, cli string, dir *tempDir, opts TemporalOptions) (*Temporal, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	t := &Temporal{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	args := []string{
		"server", "start-dev", "--ip", "127.0.0.1", "--port", strconv.Itoa(port),
		"--log-level", "error",
	}
	if opts.UI {
		uiPort := opts.UIPort
		if uiPort == 0 {
			if uiPort, err = freePort(); err != nil {
				return nil, err
			}
		}
		t.UIURL = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(uiPort))
		args = append(args, "--ui-port", strconv.Itoa(uiPort))
	} else {
		args = append(args, "--headless")
	}
	if opts.Namespace != defaultNamespace {
		args = append(args, "--namespace", opts.Namespace)
	}
	for _, namespace := range opts.Namespaces {
		args = append(args, "--namespace", namespace)
	}
	for name, kind := range opts.SearchAttributes {
		args = append(args, "--search-attribute", name+"="+kind.String())
	}
	for _, setting := range slices.Concat(dynamicConfig, opts.DynamicConfig) {
		args = append(args, "--dynamic-config-value", setting)
	}

	// KILL: the database is in memory, there is nothing to shut down in order, and
	// asking politely takes two seconds.
	server, err := command{
		name: "temporal", path: cli, args: args,
		// Nothing of ours: a TEMPORAL_ variable or a config file in the home folder
		// would change the server.
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir.path},
		dir: dir, stopSignal: "KILL",
	}.start()
	if err != nil {
		return nil, err
	}
	if err := waitTemporal(ctx, t.Address, opts.Namespace, temporalReady, server); err != nil {
		return nil, errors.Join(err, server.stop("KILL"))
	}
	t.stop = sync.OnceValue(func() error { return errors.Join(server.stop("KILL"), dir.remove()) })
	return t, nil
}

// waitTemporal returns when the server at address executes workflows in the
// namespace. server is nil for one that we did not start.
func waitTemporal(ctx context.Context, address, namespace string, limit time.Duration, server *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready after %s", limit))
	defer cancel()
	var done chan struct{} // nil blocks
	if server != nil {
		done = server.done
	}
	retry := time.NewTicker(25 * time.Millisecond)
	defer retry.Stop()
	for {
		err := probeTemporal(ctx, address, namespace)
		select {
		case <-done:
			// Also when the probe went well: another server may have our port.
			return server.ended()
		default:
		}
		if err == nil {
			return nil
		}
		var noNamespace *serviceerror.NamespaceNotFound
		if server == nil && errors.As(err, &noNamespace) {
			// Ours makes it a moment after it listens; nobody makes it on this one.
			return fmt.Errorf("devstack: Temporal at %s: %w", address, err)
		}
		select {
		case <-done:
			return server.ended()
		case <-ctx.Done():
			return fmt.Errorf("devstack: Temporal at %s: %w; last try: %w", address, context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

// probeTemporal asks each service of the server, for they become ready at
// different times: the frontend for the namespace, history for a workflow, and
// matching for a task queue.
func probeTemporal(ctx context.Context, address, namespace string) error {
	// gRPC waits a second after a refused connection, so look at the port first.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	conn.Close()

	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{
		HostPort:  address,
		Namespace: namespace,
		Logger:    log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	service := c.WorkflowService()
	if _, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace}); err != nil {
		return fmt.Errorf("namespace %q: %w", namespace, err)
	}
	const nobody = "devstack-probe"
	var notFound *serviceerror.NotFound
	if _, err := c.DescribeWorkflow(ctx, nobody, ""); err != nil && !errors.As(err, &notFound) {
		return fmt.Errorf("describe workflow: %w", err)
	}
	_, err = service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace:     namespace,
		TaskQueue:     &taskqueue.TaskQueue{Name: nobody},
		TaskQueueType: enums.TASK_QUEUE_TYPE_WORKFLOW,
	})
	return err
}

// Stop ends the server. Further calls do nothing and return the same error.
func (t *Temporal) Stop() error { return t.stop() }
