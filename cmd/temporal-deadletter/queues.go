package main

import (
	"fmt"

	"github.com/deadletter-dev/deadletter/operator"
)

// note writes a line beside the output, also from another goroutine than the verb's.
func (c *cli) note(format string, args ...any) {
	c.noting.Lock()
	defer c.noting.Unlock()
	fmt.Fprintf(c.errw, name+": "+format+"\n", args...)
}

// sayLimited tells that the server slows the verb down.
func (c *cli) sayLimited(err error) {
	c.limited.Store(true)
	c.note("the Temporal server refuses requests above the rate limit of the namespace (%s): this command continues more slowly", oneLine(err.Error()))
}

// sayUnpolled tells of the task queues that a verb needs and no worker polls. The verb
// is done, so it is no failure when the server does not tell.
func (c *cli) sayUnpolled(unpolled []operator.QueueState, err error) {
	if err != nil {
		c.note("it is not known whether workers poll the task queues: %s", oneLine(err.Error()))
	}
	for _, queue := range unpolled {
		c.note("%s", printable(queue.NoPollers()))
	}
}
