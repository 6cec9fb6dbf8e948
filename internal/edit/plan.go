package edit

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/job"
)

// Plan returns the request for a plan that edits each member or, if that is its
// verb, changes tags alone. The error says why the edit cannot be planned.
func Plan(request dlqstore.PlanRequest, wanted job.Edit) (dlqstore.PlanRequest, error) {
	if err := wanted.Validate(); err != nil {
		return request, err
	}
	switch tagsOnly := (job.Edit{Tags: wanted.Tags}); {
	case wanted.IsEmpty():
		return request, errors.New("the edit changes nothing")
	case request.Verb == job.BulkRetag && !reflect.DeepEqual(wanted, tagsOnly):
		return request, errors.New("a retag changes tags alone; plan an edit")
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it would alter what is written into arguments
	if err := encoder.Encode(wanted); err != nil {
		return request, errors.New("the edit is not JSON") // the cause quotes it
	}
	request.Parameters.Edit = text.String()
	request.Preview = func(dl *dlqstore.DeadLetter) (dlqstore.Diff, error) {
		preview, err := Try(dl, wanted)
		return preview.Diff, err
	}
	return request, nil
}
