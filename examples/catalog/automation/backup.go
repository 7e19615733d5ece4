// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Backup takes one snapshot, which from then on does not depend on the instance. A
// snapshot that is lost is not taken again: it would be of another day.
func (w *world) backup(ctx context.Context, c claim) (managed, error) {
	snapshot, found, err := find(ctx, w.configMaps(c), c)
	switch {
	case err != nil:
		return nil, err
	case found:
		return backedUp(snapshot), nil
	case c.text("status", "managed", backupIDKey) != "":
		return managed{"state": string(Failed), backupIDKey: c.text("status", "managed", backupIDKey)},
			refuse(SnapshotLost, "the contents that this backup kept are lost")
	}
	state, err := w.stateOf(ctx, c, c.text("spec", "instanceRef"))
	if err != nil {
		return nil, err
	}
	size := int64(len(state.Data[contentsKey]))
	server, err := w.serverOf(ctx, typeOf(c), state)
	if err == nil && server != nil {
		size, err = server.Dump(ctx, string(c.GetUID()))
		err = troubled(err)
	}
	if err != nil {
		return nil, err
	}
	snapshot = &corev1.ConfigMap{ObjectMeta: c.madeMeta(), Data: map[string]string{
		backupIDKey: w.newID(c, typeOf(c)), sizeKey: strconv.FormatInt(size, 10),
		idKey: state.Data[idKey], serviceKey: state.Data[serviceKey], contentsKey: state.Data[contentsKey],
	}}
	if snapshot, err = w.configMaps(c).Create(ctx, snapshot, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("keep snapshot: %w", err)
	}
	return backedUp(snapshot), nil
}

func backedUp(snapshot *corev1.ConfigMap) managed {
	size, _ := strconv.ParseInt(snapshot.Data[sizeKey], 10, 64)
	return managed{
		"state":     string(Completed),
		"createdAt": snapshot.CreationTimestamp.UTC().Format(time.RFC3339),
		backupIDKey: snapshot.Data[backupIDKey], idKey: snapshot.Data[idKey],
		"sizeBytes": size,
	}
}
