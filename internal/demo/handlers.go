// Package demo has the sample handlers that `temporal-deadletter dev` and the
// reference worker serve, one for each way in which a job can go.
package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
)

// TaskQueue is where the sample handlers are served by default.
const TaskQueue = "demo"

// The job types of the sample handlers.
const (
	SendEmail     = "SendEmail"     // succeeds at once
	ChargeCard    = "ChargeCard"    // fails until attempt number Charge.SucceedsOn
	ResizeImage   = "ResizeImage"   // fails until it is mended
	ImportInvoice = "ImportInvoice" // fails for good
	BuildReport   = "BuildReport"   // never ends by itself
)

// Email is the argument of SendEmail.
type Email struct {
	To string `json:"to"`
}

// Charge is the argument of ChargeCard.
type Charge struct {
	Order int64 `json:"order"`
	// SucceedsOn is the attempt that succeeds. Zero means the first.
	SucceedsOn int32 `json:"succeeds_on"`
}

// Image is the argument of ResizeImage.
type Image struct {
	Name  string `json:"name"`
	Width int    `json:"width"`
}

// Handlers are the sample handlers. The zero value works.
type Handlers struct {
	mended atomic.Bool
}

// Register makes a worker serve them.
func (h *Handlers) Register(registry worker.ActivityRegistry) {
	for name, handler := range map[string]any{
		SendEmail:     h.sendEmail,
		ChargeCard:    h.chargeCard,
		ResizeImage:   h.resizeImage,
		ImportInvoice: h.importInvoice,
		BuildReport:   h.buildReport,
	} {
		registry.RegisterActivityWithOptions(handler, activity.RegisterOptions{Name: name})
	}
}

// Mend makes ResizeImage succeed from now on.
func (h *Handlers) Mend() { h.mended.Store(true) }

func (*Handlers) sendEmail(_ context.Context, email Email) (string, error) {
	return "sent to " + email.To, nil
}

func (*Handlers) chargeCard(ctx context.Context, charge Charge) (string, error) {
	if attempt := activity.GetInfo(ctx).Attempt; attempt < charge.SucceedsOn {
		return "", fmt.Errorf("the payment provider is busy (attempt %d)", attempt)
	}
	return fmt.Sprintf("order %d is paid, on attempt %d", charge.Order, activity.GetInfo(ctx).Attempt), nil
}

func (h *Handlers) resizeImage(_ context.Context, image Image) (string, error) {
	if !h.mended.Load() {
		return "", errors.New("the image library cannot read this format")
	}
	return fmt.Sprintf("%s is %d pixels wide", image.Name, image.Width), nil
}

func (*Handlers) importInvoice(context.Context, string) error {
	return deadletter.Fatal(errors.New("the invoice has no customer"))
}

// buildReport ends only with its context: when the attempt times out or the job
// is cancelled.
func (*Handlers) buildReport(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
