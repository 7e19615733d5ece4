// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"path/filepath"
)

// Find returns the engines whose programs are installed, by serviceInstanceType. Their
// data is under dir.
func Find(dir string) (map[string]Engine, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]Engine{}
	if bin := findPostgres(); bin != "" {
		d, err := newDisk(filepath.Join(dir, "postgresql"))
		if err != nil {
			return nil, err
		}
		out["postgresql"] = &postgres{disk: d, bin: bin}
	}
	if server, cli := findRedis(); server != "" {
		d, err := newDisk(filepath.Join(dir, "keyvalue"))
		if err != nil {
			return nil, err
		}
		out["keyvalue"] = &redis{disk: d, server: server, cli: cli}
	}
	return out, nil
}

// Psql is the program that people use a PostgreSQL with; empty where Find finds none.
func Psql() string {
	bin := findPostgres()
	if bin == "" {
		return ""
	}
	return find([]string{bin}, "psql")
}

// Stop ends all servers whose data is under dir.
func Stop(ctx context.Context, dir string) error {
	engines, err := Find(dir)
	for _, e := range engines {
		err = errors.Join(err, e.Stop(ctx))
	}
	return err
}
