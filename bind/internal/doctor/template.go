// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// judgedIn is how soon a backend that works has looked at a new template.
const judgedIn = 30 * time.Second

// checkTemplates looks at what a Control Plane Cluster offers, where this cluster is one and
// the person may read it, and reports whether it offers anything.
func (d *doctor) checkTemplates(ctx context.Context) bool {
	all, err := cluster.Listed[v1alpha1.APIServiceExportTemplate](ctx, d.app.Resource(v1alpha1.Resource("apiserviceexporttemplates")))
	if fates.Is(err, fates.Absent, fates.Unserved, fates.Forbidden) {
		return false
	}
	if err != nil {
		d.note("template", "", cluster.Explain(err), "", "An administrator of this cluster can look.")
		return false
	}
	for _, t := range all {
		d.checkTemplate(&t)
	}
	return len(all) > 0
}

// checkTemplate goes by what the backend says of a template, and tells one that no backend
// has looked at.
func (d *doctor) checkTemplate(t *v1alpha1.APIServiceExportTemplate) {
	about := t.Namespace + "/" + t.Name
	ready := v1alpha1.FindCondition(t.Status.Conditions, v1alpha1.ConditionReady)
	switch age := d.age(t.CreationTimestamp.Time); {
	case ready != nil && ready.Status == metav1.ConditionTrue:
		d.note("template", about, "", "tenants can have it", "")
	case ready != nil:
		d.note("template", about, ready.Reason+": "+ready.Message, "", ofTemplate(t, ready.Reason, ready.Message))
	case age > judgedIn:
		d.note("template", about, fmt.Sprintf("no backend has looked at it for %s", age), "",
			"Look whether the backend runs: kubectl get deployments --all-namespaces -l app=klutch-backend")
	default:
		d.note("template", about, "", "it is new", "")
	}
}
