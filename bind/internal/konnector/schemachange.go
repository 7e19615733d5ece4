// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// takeOver decides whether the provider's schema may replace the one that is there. If
// not, the condition says why, and the objects stay in step under what is there.
func (p *pass) takeOver(live, wanted *unstructured.Unstructured) (why v1alpha1.Condition, err error) {
	here, err := crd.SpecOf(live)
	if err != nil {
		return why, err
	}
	theirs, err := crd.SpecOf(wanted)
	if err != nil {
		return why, err
	}
	hash, err := crd.ChangeHash(live, wanted)
	if err != nil {
		return why, err
	}
	changes := crdcompat.Only(crdcompat.Compare(here, theirs), crdcompat.Change.NeedsConsent)
	wait := p.untilNextSchema(time.Now())
	switch {
	case len(changes) > 0 && p.binding.Annotations[v1alpha1.AcceptSchemaAnnotation] != hash:
		why = warned(v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, heldSchema(p.key, hash, changes))
	case wait > 0:
		p.again = wait
		why = v1alpha1.False(v1alpha1.ConditionSchemaInSync, v1alpha1.SeverityInfo, v1alpha1.ReasonSchemaChangeWaits,
			fmt.Sprintf("The provider's newest schema waits: the CRD is changed every %s at most. Objects are synced under the schema that is here.", p.opts.SchemaInterval))
	default:
		return why, nil
	}
	wanted.Object["spec"] = live.Object["spec"]
	under := *p.export
	under.Spec.APIServiceExportCRDSpec = *here
	p.export = &under
	return why, nil
}

func heldSchema(binding cache.ObjectName, hash string, changes []crdcompat.Change) string {
	namespace := ""
	if binding.Namespace != "" {
		namespace = " -n " + binding.Namespace
	}
	return fmt.Sprintf("The provider's new schema is not taken over; objects are synced under the one that is here. To take it over: kubectl annotate apiservicebinding%s %s --overwrite %s=%s. It would change what is valid or kept here: %s.",
		namespace, binding.Name, v1alpha1.AcceptSchemaAnnotation, hash, crdcompat.List(changes))
}

// untilNextSchema is how long the CRD of a binding has to stay as it is.
func (p *pass) untilNextSchema(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, ok := p.schemas[p.key]
	if !ok {
		return 0
	}
	return p.opts.SchemaInterval - now.Sub(last)
}

func (p *pass) noteSchema(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schemas[p.key] = now
}
