package devstack

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
)

// CreateDatabase makes an empty database on the server of serverURL, whose role
// must be allowed to, and returns the URL of the new one. serverURL may be a URL
// or `key=value` pairs; so is the result.
func CreateDatabase(ctx context.Context, serverURL, name string) (string, error) {
	// template0, because template1 cannot be copied while somebody is connected
	// to it.
	statement := "create database " + pgx.Identifier{name}.Sanitize() + " template template0 encoding 'UTF8'"
	if err := execOnce(ctx, serverURL, statement); err != nil {
		return "", fmt.Errorf("devstack: create database %s: %w", name, err)
	}
	return databaseURL(serverURL, name)
}

// DropDatabase drops a database of the server and ends the connections to it.
// One that does not exist is not an error. serverURL must name another database.
func DropDatabase(ctx context.Context, serverURL, name string) error {
	statement := "drop database if exists " + pgx.Identifier{name}.Sanitize() + " with (force)"
	if err := execOnce(ctx, serverURL, statement); err != nil {
		return fmt.Errorf("devstack: drop database %s: %w", name, err)
	}
	return nil
}

func execOnce(ctx context.Context, serverURL, statement string) error {
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement)
	return err
}

// databaseURL returns serverURL with the database replaced.
func databaseURL(serverURL, name string) (string, error) {
	if !strings.Contains(serverURL, "://") {
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(name)
		return serverURL + " dbname='" + quoted + "'", nil // of two, the last wins
	}
	parsed, err := url.Parse(serverURL)
	if err != nil {
		return "", fmt.Errorf("devstack: database URL: %w", err)
	}
	parsed.Path, parsed.RawPath = "/"+name, ""
	return parsed.String(), nil
}
