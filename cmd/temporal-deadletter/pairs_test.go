package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/job"
)

// TestDetailText proves that details are pairs without nulls, with the digits of
// numbers as they are, quoted where they would not be seen to end, and safe to print.
func TestDetailText(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		``:                                       ``,
		`{}`:                                     ``,
		`{"z":null}`:                             ``,
		`[1]`:                                    `[1]`,
		`{"b":"x","a":1.10,"c":null}`:            `a=1.10 b=x`,
		`{"n":9007199254740993,"t":true}`:        `n=9007199254740993 t=true`,
		`{"a":"two words","e":"","q":"k=v"}`:     `a="two words" e="" q="k=v"`,
		`{"o":{"k": [1, null]}}`:                 `o={"k": [1, null]}`,
		`{"o":{"k": [1, null]},"x":"\u001b[2J"}`: `o={"k": [1, null]} x=` + "\ufffd[2J",
	} {
		require.Equal(t, want, detailText(json.RawMessage(detail)), detail)
	}
}

// TestOptionsText proves that of the options only what differs from the defaults is
// told, also where every default was spelled out, and that options that do not read
// are shown as they were sent. A negative duration is told as none.
func TestOptionsText(t *testing.T) {
	t.Parallel()
	spelled := job.Policy{HeartbeatTimeout: job.DefaultEnqueueHeartbeatTimeout}.WithDefaults()
	changed := spelled
	changed.MaxAttempts, changed.BaseDelay, changed.RetryZombies, changed.HeartbeatTimeout = -1, time.Minute, true, -time.Second
	changed.JitterMaxDelay = -1
	delay, none := time.Hour, time.Duration(0)
	for want, options := range map[string]job.Options{
		`type=A (policy: the defaults)`:              {Type: "A"},
		`type=A task_queue=q (policy: the defaults)`: {Type: "A", TaskQueue: "q", Policy: spelled, StartDelay: &none},
		`type=A tag:k="v w" tag:l=m start_delay=1h0m0s base_delay=1m0s heartbeat_timeout=none jitter_max_delay=none max_attempts=-1 retry_zombies=true`: {
			Type: "A", Tags: map[string]string{"l": "m", "k": "v w"}, Policy: changed, StartDelay: &delay,
		},
	} {
		sent, err := json.Marshal(options)
		require.NoError(t, err)
		require.Equal(t, want, optionsText(sent))
	}
	refused := json.RawMessage(`{"type": "A", "policy": {"max_attempts": "many"}}`)
	require.Equal(t, string(refused), optionsText(refused))
}
