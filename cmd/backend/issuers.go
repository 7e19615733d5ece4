// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/klutch"
)

// An issuer is a document of an --oidc-issuer-file. Its fields are as the flags of
// the first issuer, and its paths are relative to where the backend was started.
type issuer struct {
	Name             string   `json:"name"` // in the callback URL: /callback/NAME
	Title            string   `json:"title"`
	URL              string   `json:"url"`
	CAFile           string   `json:"caFile"`
	ClientID         string   `json:"clientID"`
	ClientSecretFile string   `json:"clientSecretFile"`
	CallbackURL      string   `json:"callbackURL"`
	Scopes           []string `json:"scopes"`
	GroupsClaim      string   `json:"groupsClaim"`
	UsernameClaim    string   `json:"usernameClaim"`
	UsernamePrefix   string   `json:"usernamePrefix"` // "oidc-NAME:" if empty
	GroupsPrefix     string   `json:"groupsPrefix"`   // "oidc-NAME:" if empty
}

// documentEnd is where a YAML document ends; what follows --- in its line is part of the
// next one.
var documentEnd = regexp.MustCompile(`(?m)^(?:---|\.\.\.)(?:[ \t\r]|$)`)

func (f *flags) readIssuers() error {
	var errs []error
	for _, file := range f.issuerFiles {
		err := read(file, func(data []byte) error {
			if err := f.addIssuers(string(data)); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			return nil
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (f *flags) addIssuers(documents string) error {
	before := len(f.backend.Issuers)
	for _, document := range documentEnd.Split(documents, -1) {
		var i *issuer
		if err := yaml.UnmarshalStrict([]byte(document), &i); err != nil {
			return err
		}
		if i == nil { // nothing but comments
			continue
		}
		complete, err := i.complete()
		if err != nil {
			return fmt.Errorf("issuer %q: %w", i.Name, err)
		}
		f.backend.Issuers = append(f.backend.Issuers, complete)
	}
	if len(f.backend.Issuers) == before {
		return errors.New("holds no issuer")
	}
	return nil
}

// complete checks that required fields are set and reads the files that i names.
func (i *issuer) complete() (klutch.Issuer, error) {
	for _, field := range [][2]string{{"name", i.Name}, {"url", i.URL}, {"clientID", i.ClientID}} {
		if field[1] == "" {
			return klutch.Issuer{}, fmt.Errorf("%s is required", field[0])
		}
	}
	login := auth.Config{Issuer: i.URL, ClientID: i.ClientID, RedirectURL: i.CallbackURL, Scopes: i.Scopes, GroupsClaim: i.GroupsClaim}
	err := errors.Join(
		read(i.ClientSecretFile, func(data []byte) error {
			login.ClientSecret = strings.TrimSpace(string(data))
			return nil
		}),
		read(i.CAFile, func(data []byte) (err error) {
			login.HTTPClient, err = trusting(data)
			return err
		}),
	)
	users := export.Users{UsernameClaim: i.UsernameClaim, UsernamePrefix: i.UsernamePrefix, GroupsPrefix: i.GroupsPrefix}
	return klutch.Issuer{Name: i.Name, Title: i.Title, Login: login, Users: users}, err
}
