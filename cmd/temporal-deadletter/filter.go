package main

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// filterFlags select dead letters, the same for each verb that takes a filter.
type filterFlags struct {
	jobType, reason, queue, errorText, fingerprint string
	tags                                           []string
	deadAfter, deadBefore                          string
	enqueuedAfter, enqueuedBefore                  string
	minAttempts, maxAttempts, generation           int
	replayed, superseded                           bool
	where                                          []string

	set *pflag.FlagSet // to tell an empty value from none
}

func (f *filterFlags) add(cmd *cobra.Command) {
	f.set = pflag.NewFlagSet("filter", pflag.ContinueOnError)
	f.set.StringVar(&f.jobType, "type", "", "job type")
	f.set.StringVar(&f.reason, "reason", "", "why it is dead, such as "+someReasons)
	f.set.StringVar(&f.queue, "queue", "", "task queue of the handler")
	f.set.StringVar(&f.errorText, "error-text", "", "part of the error's message or type, in any case of letters")
	f.set.StringVar(&f.fingerprint, "fingerprint", "", "fingerprint of the error")
	f.set.StringArrayVar(&f.tags, "tag", nil, "tag as key=value; repeat it to ask for several")
	f.set.StringVar(&f.deadAfter, "dead-after", "", "dead at this time or later: "+timeHelp)
	f.set.StringVar(&f.deadBefore, "dead-before", "", "dead before this time, given like --dead-after")
	f.set.StringVar(&f.enqueuedAfter, "enqueued-after", "", "enqueued at this time or later, given like --dead-after")
	f.set.StringVar(&f.enqueuedBefore, "enqueued-before", "", "enqueued before this time, given like --dead-after")
	f.set.IntVar(&f.minAttempts, "min-attempts", 0, "at least so many attempts")
	f.set.IntVar(&f.maxAttempts, "max-attempts", 0, "at most so many attempts")
	f.set.IntVar(&f.generation, "generation", 0, "0: original jobs; 1: their replays; and so on")
	f.set.BoolVar(&f.replayed, "replayed", false, "true: replayed at least once; false: never")
	f.set.BoolVar(&f.superseded, "superseded", false, "true: the same job succeeded later, after a reset; false: not so")
	f.set.StringArrayVar(&f.where, "where", nil, "a value in the arguments, such as 'args[0].customer.id=42'; repeat it to ask for several.\n"+
		"After args[N] go .name, [\"any name\"] and [N]; the value is JSON, or else a string")
	cmd.Flags().AddFlagSet(f.set)
}

// someReasons is for the help of a flag: all of them are too long for a line. What
// is no reason is refused with all of them.
const someReasons = string(job.ReasonTimeout) + " or " + string(job.ReasonFatalError) + "; --reason help lists all"

func reasons() string {
	var names []string
	for _, reason := range job.Reasons() {
		names = append(names, string(reason))
	}
	return strings.Join(names, ", ")
}

// filter reads the flags. A flag that is given without a value is refused: it is
// more likely an unset variable of a script than a wish for everything.
func (f *filterFlags) filter(now time.Time) (dlqstore.Filter, error) {
	filter := dlqstore.Filter{
		JobType: f.jobType, TaskQueue: f.queue, ErrorText: f.errorText, Fingerprint: f.fingerprint,
	}
	var err error
	f.set.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Value.String() == "" && err == nil {
			err = usagef("--%s has an empty value; leave the flag out to select all", flag.Name)
		}
	})
	if err != nil {
		return filter, err
	}
	if f.set.Changed("reason") {
		if filter.Reason, err = job.ParseReason(f.reason); err != nil {
			return filter, usagef("--reason: %q is none of %s", f.reason, reasons())
		}
	}
	for _, tag := range f.tags {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return filter, usagef("--tag: %q does not look like key=value", tag)
		}
		if other, twice := filter.Tags[key]; twice && other != value {
			return filter, usagef("--tag: %s cannot be both %q and %q", key, other, value)
		}
		if filter.Tags == nil {
			filter.Tags = map[string]string{}
		}
		filter.Tags[key] = value
	}
	if filter.DeadAfter, err = moment("dead-after", f.deadAfter, now); err != nil {
		return filter, err
	}
	if filter.DeadBefore, err = moment("dead-before", f.deadBefore, now); err != nil {
		return filter, err
	}
	if filter.EnqueuedAfter, err = moment("enqueued-after", f.enqueuedAfter, now); err != nil {
		return filter, err
	}
	if filter.EnqueuedBefore, err = moment("enqueued-before", f.enqueuedBefore, now); err != nil {
		return filter, err
	}
	for _, text := range f.where {
		condition, err := dlqstore.ParseCondition(text)
		if err != nil {
			return filter, usagef("--where: %w", err)
		}
		filter.Where = append(filter.Where, condition)
	}
	if len(filter.Where) > dlqstore.MaxConditions {
		return filter, usagef("--where: %d conditions are given, and %d is the most", len(filter.Where), dlqstore.MaxConditions)
	}
	for name, number := range map[string]struct {
		given int
		into  **int
	}{
		"min-attempts": {f.minAttempts, &filter.MinAttempts},
		"max-attempts": {f.maxAttempts, &filter.MaxAttempts},
		"generation":   {f.generation, &filter.Generation},
	} {
		if !f.set.Changed(name) {
			continue
		}
		if number.given < 0 || number.given > math.MaxInt32 {
			return filter, usagef("--%s: %d is not between 0 and %d", name, number.given, math.MaxInt32)
		}
		*number.into = &number.given
	}
	if filter.MinAttempts != nil && filter.MaxAttempts != nil && *filter.MinAttempts > *filter.MaxAttempts {
		return filter, usagef("--min-attempts %d is above --max-attempts %d: nothing has both", *filter.MinAttempts, *filter.MaxAttempts)
	}
	if f.set.Changed("replayed") {
		filter.Replayed = &f.replayed
	}
	if f.set.Changed("superseded") {
		filter.Superseded = &f.superseded
	}
	return filter, nil
}

// describe puts a filter into words.
func describe(f dlqstore.Filter) string {
	var words []string
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+" "+printable(value))
		}
	}
	add("type", f.JobType)
	add("reason", string(f.Reason))
	add("queue", f.TaskQueue)
	add("error text", f.ErrorText)
	add("fingerprint", f.Fingerprint)
	for _, key := range slices.Sorted(maps.Keys(f.Tags)) {
		add("tag", key+"="+f.Tags[key])
	}
	if f.DeadAfter != nil {
		add("dead since", timeText(f.DeadAfter))
	}
	if f.DeadBefore != nil {
		add("dead before", timeText(f.DeadBefore))
	}
	if f.EnqueuedAfter != nil {
		add("enqueued since", timeText(f.EnqueuedAfter))
	}
	if f.EnqueuedBefore != nil {
		add("enqueued before", timeText(f.EnqueuedBefore))
	}
	if f.MinAttempts != nil {
		add("at least", strconv.Itoa(*f.MinAttempts)+" attempts")
	}
	if f.MaxAttempts != nil {
		add("at most", strconv.Itoa(*f.MaxAttempts)+" attempts")
	}
	if f.Generation != nil {
		add("generation", strconv.Itoa(*f.Generation))
	}
	if f.Replayed != nil {
		add("replayed", strconv.FormatBool(*f.Replayed))
	}
	if f.Superseded != nil {
		add("superseded", strconv.FormatBool(*f.Superseded))
	}
	for _, condition := range f.Where {
		add("where", condition.String())
	}
	if len(words) == 0 {
		return "none: every dead letter of the namespace"
	}
	return strings.Join(words, ", ")
}
