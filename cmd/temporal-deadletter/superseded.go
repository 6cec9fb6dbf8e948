package main

import (
	"context"
	"errors"
	"fmt"
)

// allowSuperseded asks whether to replay a job that succeeded after all, which is
// what refused says; nil means yes.
func (c *cli) allowSuperseded(ctx context.Context, refused error, yes bool) error {
	switch {
	case yes:
		return nil
	case !c.canAsk():
		return usagef("%w: pass --yes to replay it all the same", refused)
	}
	fmt.Fprintf(c.errw, "%s: %s\nReplay it all the same? [y/N] ", name, oneLine(refused.Error()))
	answer, err := c.ask(ctx)
	if err != nil {
		return err
	}
	if answer != "y" && answer != "yes" {
		return errors.New("nothing was replayed: the answer was not yes")
	}
	return nil
}
