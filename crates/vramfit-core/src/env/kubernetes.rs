//! A job of Kubernetes.

use super::{Start, notes, quote, variables};

pub(super) fn write(start: &Start) -> String {
    let lines = variables(start, "            # ", |variable| {
        format!(
            "            - name: {}\n              value: {}",
            variable.name,
            quote::kubernetes(&variable.value)
        )
    });
    let environment = match start.variables.is_empty() {
        true => "          env: []\n".to_owned(),
        false => format!("          env:\n{lines}"),
    };
    let Start { gpus, image, .. } = start;
    let command: Vec<_> = start
        .command
        .iter()
        .map(|word| quote::kubernetes(word))
        .collect();
    format!(
        "\
# Settings for JAX's memory in a job: `kubectl apply -f job.yaml`.
{}apiVersion: batch/v1
kind: Job
metadata:
  name: jax-train
spec:
  # A program that ran out of memory does so again.
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: train
          # An image with your program, JAX and vramfit; `vramfit env dockerfile` prints how to make it.
          image: {}
          command: [{}]
{environment}          resources:
            # Whole cards or MIG slices (nvidia.com/mig-1g.10gb). Where the cluster shares cards by time
            # slicing or MPS, nothing here limits memory: give each process its part.
            limits:
              nvidia.com/gpu: {gpus}
              memory: 64Gi
          # Passes once JAX can have the card. A check must not take a pool beside the program's.
          startupProbe:
            exec:
              command:
                - sh
                - -c
                - XLA_PYTHON_CLIENT_PREALLOCATE=false vramfit doctor --require gpu
            timeoutSeconds: 120
            periodSeconds: 30
            failureThreshold: 5
          volumeMounts:
            - name: shm
              mountPath: /dev/shm
      volumes:
        # Batches handed between processes lie in shared memory; containers get 64 MB unless told.
        - name: shm
          emptyDir:
            medium: Memory
            sizeLimit: 8Gi
",
        notes(start, "# "),
        quote::yaml(image),
        command.join(", "),
    )
}
