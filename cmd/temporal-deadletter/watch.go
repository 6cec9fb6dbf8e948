package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	defaultInterval = 2 * time.Second
	minInterval     = 100 * time.Millisecond
	// clearScreen moves to the corner and erases what is there.
	clearScreen = "\x1b[H\x1b[2J"
)

func (c *cli) watchCommand() *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show the counts, the trend and the largest groups, again and again",
		Long: "Show the counts, the trend and the largest groups in the terminal, again and again until\n" +
			"Ctrl-C. A terminal that cannot be redrawn (TERM=dumb) gets one view below the other. When\n" +
			"a server goes away the view says so and goes on. Tables are cut to what the terminal\n" +
			"has place for.",
		Example: "  " + name + " watch\n" +
			"  " + name + " watch --interval 10s",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.watch(cmd.Context(), interval) },
	}
	addInterval(cmd, &interval)
	return cmd
}

func addInterval(cmd *cobra.Command, interval *time.Duration) {
	cmd.Flags().DurationVar(interval, "interval", defaultInterval, "how often the view is refreshed")
}

// watch ends without an error when its context does: that is how a person leaves it.
func (c *cli) watch(ctx context.Context, interval time.Duration) error {
	switch {
	case c.output != outputText:
		return usagef("watch is for people: use `%s stats -o %s` in a program", name, c.output)
	case interval < minInterval:
		return usagef("--interval: %s is below %s", interval, minInterval)
	case !isTerminal(c.out):
		return usagef("watch redraws a terminal, and the output is none: use `%s stats`", name)
	}
	s, err := c.connect(ctx)
	if err != nil {
		return unlessLeft(ctx, err)
	}
	defer s.close()
	refresh := time.NewTicker(interval)
	defer refresh.Stop()
	view, err := readWatch(ctx, s)
	if err != nil {
		return unlessLeft(ctx, err) // it never worked
	}
	for {
		heading := fmt.Sprintf("%s watch: namespace %s at %s, every %s, Ctrl-C to leave\n",
			name, printable(s.config.Temporal.Namespace), time.Now().UTC().Format(timeForm), interval)
		if err != nil {
			heading += "Not refreshed: " + message(ctx, err) + "\n"
		}
		if c.limited.Load() {
			heading += "The Temporal server refuses requests above the rate limit of the namespace: the view is refreshed more slowly\n"
		}
		columns, rows := sizeOf(c.out) // it may be another by now
		text, fault := view.fitted(heading, columns, rows)
		if fault != nil {
			return fault
		}
		if err := c.draw(text); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-refresh.C:
		}
		var fresh *watchView
		if fresh, err = readWatch(ctx, s); err == nil {
			view = fresh
		} else if ctx.Err() != nil {
			return nil
		}
	}
}

func unlessLeft(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// draw writes a view at once, so that it does not flicker.
func (c *cli) draw(view string) error {
	before := clearScreen
	if c.isDumb() {
		before = "\n"
	}
	_, err := c.out.Write([]byte(before + view))
	return err
}

// isDumb reports whether the terminal takes no commands, as far as is known.
func (c *cli) isDumb() bool {
	kind := ""
	for _, variable := range c.environ {
		if value, ok := strings.CutPrefix(variable, "TERM="); ok {
			kind = value
		}
	}
	return kind == "" || kind == "dumb"
}
