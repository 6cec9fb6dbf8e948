package deadletter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/replay"
	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/workflows"
)

const (
	// keeperInterval is how often a keeper looks for interrupted replays.
	keeperInterval = 10 * time.Second
	// operatorInterval is how often it looks after the operator workflow.
	operatorInterval = time.Minute
	// interruptedAfter is when a replay whose start is not confirmed counts as
	// interrupted. Finishing one that is not is harmless.
	interruptedAfter = 5 * time.Second
	// interruptedBatch bounds one round.
	interruptedBatch = 100
)

// keeper looks after the dead-letter queue while a worker serves it: it keeps the
// operator workflow running, the sweep and the retention scheduled, sets runs that are
// pinned to a replaced worker version to AutoUpgrade, finishes replays whose process
// died between the commit and the start, compacts the store's summaries and removes old
// plans. Any number of keepers may do so at once.
type keeper struct {
	plugin    *Plugin
	once      sync.Once
	cancel    context.CancelFunc
	ctx       context.Context
	done      sync.WaitGroup
	schedules []*schedule
	// lacking has, by what could not be done, the missing right that was logged.
	lacking map[string]string
	// version is the worker's, the zero value if it is unversioned.
	version worker.WorkerDeploymentVersion
}

func (p *Plugin) newKeeper(workerKey string) *keeper {
	k := &keeper{plugin: p, schedules: p.schedules(), lacking: make(map[string]string)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	p.keepers[workerKey] = k
	p.mu.Unlock()
	return k
}

// startOwn starts the keeper with a connection of its own, made as the plugin's
// client was: a plugin never gets hold of that client. Without one, the plugin
// was given to the worker only, the keeper starts when the worker's first
// activity tells it the worker's client.
func (k *keeper) startOwn() error {
	k.plugin.mu.Lock()
	options := k.plugin.clientOptions
	k.plugin.mu.Unlock()
	if options == nil {
		return nil
	}
	c, err := client.NewLazyClient(*options)
	if err != nil {
		return err
	}
	namespace := options.Namespace
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	k.once.Do(func() {
		k.done.Go(func() {
			defer c.Close()
			k.run(c, namespace, options.Logger)
		})
	})
	return nil
}

// start starts the keeper with the worker's client, unless it runs already.
func (k *keeper) start(c client.Client, namespace string) {
	if k.plugin.options.NoUpkeep {
		return
	}
	k.once.Do(func() { k.done.Go(func() { k.run(c, namespace, nil) }) })
}

// stop ends the keeper and waits for its end.
func (k *keeper) stop() {
	k.once.Do(func() {}) // none starts after this
	k.cancel()
	k.done.Wait()
}

func (k *keeper) run(c client.Client, namespace string, logger log.Logger) {
	if logger == nil {
		logger = log.NewStructuredLogger(slog.Default())
	}
	ticker := time.NewTicker(keeperInterval)
	defer ticker.Stop()
	var operatorSeen time.Time
	versions := versioning{client: c, namespace: namespace, logger: logger, taskQueue: k.plugin.options.TaskQueue, own: k.version}
	for {
		if time.Since(operatorSeen) >= operatorInterval {
			if err := k.ensureOperator(c); err == nil {
				operatorSeen = time.Now()
			} else if k.ctx.Err() == nil {
				logger.Warn("deadletter: the operator workflow could not be started and will be tried again", "error", err)
			}
		}
		if err := versions.look(k.ctx); err != nil && k.ctx.Err() == nil {
			logger.Warn("deadletter: runs that are pinned to a replaced worker version could not be moved and will be tried again", "error", err)
		}
		for _, s := range k.schedules {
			if err := s.ensure(k.ctx, c); err != nil && k.ctx.Err() == nil {
				logger.Warn("deadletter: a schedule could not be looked after and will be tried again", "schedule", s.id, "error", err)
			}
		}
		k.report(logger, "interrupted replays could not be finished", k.finishReplays(c, namespace))
		k.report(logger, "old plans could not be removed", k.plugin.options.Store.ForgetPlans(k.ctx))
		k.report(logger, "the summaries, which stay exact, could not be compacted", k.plugin.options.Store.Compact(k.ctx))
		select {
		case <-k.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// report logs that work on the store failed. A missing right is logged once, not in
// every round: it may be kept from the role on purpose, and stays so until it is granted.
func (k *keeper) report(logger log.Logger, failed string, err error) {
	if k.ctx.Err() != nil {
		return
	}
	lacking := ""
	if rights, ok := errors.AsType[*dlqstore.RightsError](err); ok {
		lacking = rights.Error()
	}
	if err != nil && (lacking == "" || lacking != k.lacking[failed]) {
		logger.Warn("deadletter: "+failed+" and will be tried again", "error", err)
	}
	k.lacking[failed] = lacking
}

func (k *keeper) ensureOperator(c client.Client) error {
	ctx, cancel := context.WithTimeout(k.ctx, keeperInterval)
	defer cancel()
	_, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       job.OperatorWorkflowID,
		TaskQueue:                k.plugin.options.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowTaskTimeout:      workflows.OperatorTaskTime,
		StaticSummary:            "Dead-letter operator: takes signal and update \"replay\"",
	}, job.OperatorWorkflowType, job.OperatorInput{Version: job.OperatorVersion})
	return err
}

func (k *keeper) finishReplays(c client.Client, namespace string) error {
	starts, err := k.plugin.options.Store.PendingReplays(k.ctx, namespace, interruptedAfter, replay.MaxStartDelay, interruptedBatch)
	if err != nil {
		return err
	}
	starter := replay.Starter{Store: k.plugin.options.Store, Service: c.WorkflowService()}
	var failed []error
	for i := range starts {
		if _, err := starter.Finish(k.ctx, &starts[i]); err != nil && !replay.IsFinal(err) {
			failed = append(failed, err) // it must not hold up the others
		}
	}
	return errors.Join(failed...)
}
