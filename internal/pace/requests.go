package pace

import (
	"context"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
)

// The requests that our code makes for many jobs, or for a person who waits.

// CountWorkflowExecutions is paced with the visibility.
func (s *Service) CountWorkflowExecutions(
	ctx context.Context, request *workflowservice.CountWorkflowExecutionsRequest, options ...grpc.CallOption,
) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	return call(ctx, s, &s.visibility, s.WorkflowServiceClient.CountWorkflowExecutions, request, options)
}

// ListWorkflowExecutions is paced with the visibility.
func (s *Service) ListWorkflowExecutions(
	ctx context.Context, request *workflowservice.ListWorkflowExecutionsRequest, options ...grpc.CallOption,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return call(ctx, s, &s.visibility, s.WorkflowServiceClient.ListWorkflowExecutions, request, options)
}

// DescribeNamespace is paced with the executions.
func (s *Service) DescribeNamespace(
	ctx context.Context, request *workflowservice.DescribeNamespaceRequest, options ...grpc.CallOption,
) (*workflowservice.DescribeNamespaceResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.DescribeNamespace, request, options)
}

// DescribeTaskQueue is paced with the executions.
func (s *Service) DescribeTaskQueue(
	ctx context.Context, request *workflowservice.DescribeTaskQueueRequest, options ...grpc.CallOption,
) (*workflowservice.DescribeTaskQueueResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.DescribeTaskQueue, request, options)
}

// DescribeWorkflowExecution is paced with the executions.
func (s *Service) DescribeWorkflowExecution(
	ctx context.Context, request *workflowservice.DescribeWorkflowExecutionRequest, options ...grpc.CallOption,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.DescribeWorkflowExecution, request, options)
}

// GetWorkflowExecutionHistory is paced with the executions.
func (s *Service) GetWorkflowExecutionHistory(
	ctx context.Context, request *workflowservice.GetWorkflowExecutionHistoryRequest, options ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.GetWorkflowExecutionHistory, request, options)
}

// GetWorkflowExecutionHistoryReverse is paced with the executions.
func (s *Service) GetWorkflowExecutionHistoryReverse(
	ctx context.Context, request *workflowservice.GetWorkflowExecutionHistoryReverseRequest, options ...grpc.CallOption,
) (*workflowservice.GetWorkflowExecutionHistoryReverseResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.GetWorkflowExecutionHistoryReverse, request, options)
}

// PauseActivity is paced with the executions.
func (s *Service) PauseActivity(
	ctx context.Context, request *workflowservice.PauseActivityRequest, options ...grpc.CallOption,
) (*workflowservice.PauseActivityResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.PauseActivity, request, options)
}

// RequestCancelWorkflowExecution is paced with the executions.
func (s *Service) RequestCancelWorkflowExecution(
	ctx context.Context, request *workflowservice.RequestCancelWorkflowExecutionRequest, options ...grpc.CallOption,
) (*workflowservice.RequestCancelWorkflowExecutionResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.RequestCancelWorkflowExecution, request, options)
}

// SignalWithStartWorkflowExecution is paced with the executions.
func (s *Service) SignalWithStartWorkflowExecution(
	ctx context.Context, request *workflowservice.SignalWithStartWorkflowExecutionRequest, options ...grpc.CallOption,
) (*workflowservice.SignalWithStartWorkflowExecutionResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.SignalWithStartWorkflowExecution, request, options)
}

// StartWorkflowExecution is paced with the executions.
func (s *Service) StartWorkflowExecution(
	ctx context.Context, request *workflowservice.StartWorkflowExecutionRequest, options ...grpc.CallOption,
) (*workflowservice.StartWorkflowExecutionResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.StartWorkflowExecution, request, options)
}

// UnpauseActivity is paced with the executions.
func (s *Service) UnpauseActivity(
	ctx context.Context, request *workflowservice.UnpauseActivityRequest, options ...grpc.CallOption,
) (*workflowservice.UnpauseActivityResponse, error) {
	return call(ctx, s, &s.executions, s.WorkflowServiceClient.UnpauseActivity, request, options)
}
