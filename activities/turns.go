package activities

import (
	"context"
	"sync"
)

// turns bounds how many requests of one verb use the store at once in this process: those
// that wait for a lock hold a connection each, and leave half of them to others.
type turns struct {
	mu     sync.Mutex
	places map[string]chan struct{}
}

// take waits for a place of the verb. It has to be given back by done.
func (t *turns) take(ctx context.Context, verb string, places int) (done func(), err error) {
	t.mu.Lock()
	if t.places == nil {
		t.places = map[string]chan struct{}{}
	}
	taken, ok := t.places[verb]
	if !ok {
		taken = make(chan struct{}, max(1, places))
		t.places[verb] = taken
	}
	t.mu.Unlock()
	select {
	case taken <- struct{}{}:
		return func() { <-taken }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// turn waits until a request of the verb may use the store.
func (a *Activities) turn(ctx context.Context, verb string) (done func(), err error) {
	return a.turns.take(ctx, verb, int(a.Store.Pool().Config().MaxConns)/2)
}
