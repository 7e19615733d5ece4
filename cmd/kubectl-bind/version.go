// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/version"
)

// versionInfo is what the program knows about its own making.
type versionInfo struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"`
}

func versionCommand(p *plugin) *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "version", Short: "Print the version of this program", Args: noArgs}
	cmd.Flags().StringVarP(&format, "output", "o", "", "How to print: json, yaml. One line if not given.")
	cmd.RunE = func(*cobra.Command, []string) error {
		info := ownVersion()
		text, err := []byte("kubectl-bind "+version.Text()+"\n"), error(nil)
		switch format {
		case "":
		case "json":
			text, err = json.MarshalIndent(info, "", "    ")
			text = append(text, '\n')
		case "yaml":
			text, err = yaml.Marshal(info)
		default:
			return usageError{fmt.Sprintf("--output %s: neither json nor yaml", format)}
		}
		if err != nil {
			return err
		}
		_, err = p.Out.Write(text)
		return err
	}
	return cmd
}

func ownVersion() versionInfo {
	return versionInfo{
		Version: version.Get(), Commit: version.Commit(),
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
