//! A Kubernetes job.

use super::{Launch, notes, quote, variables};

pub(super) fn write(launch: &Launch) -> String {
    let lines = variables(launch, "            # ", |variable| {
        format!(
            "            - name: {}\n              value: {}",
            variable.name,
            quote::kubernetes(&variable.value)
        )
    });
    let environment = match launch.variables.is_empty() {
        true => "          env: []\n".to_owned(),
        false => format!("          env:\n{lines}"),
    };
    let Launch { gpus, image, .. } = launch;
    let command: Vec<_> = launch
        .command
        .iter()
        .map(|word| quote::kubernetes(word))
        .collect();
    format!(
        "\
# Memory settings for JAX in a job: `kubectl apply -f job.yaml`.
{}apiVersion: batch/v1
kind: Job
metadata:
  name: jax-train
spec:
  # A program that ran out of memory would do so again.
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: train
          # An image with your program, JAX and vramfit; `vramfit env dockerfile` prints a Dockerfile.
          image: {}
          command: [{}]
{environment}          resources:
            # Whole GPUs or MIG slices (nvidia.com/mig-1g.10gb). Where the cluster shares GPUs by time
            # slicing or MPS, nothing here limits memory: set a fraction for each process.
            limits:
              nvidia.com/gpu: {gpus}
              memory: 64Gi
          # Passes once JAX can use the GPU. The check must not preallocate a second pool.
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
        # Batches passed between processes are in shared memory; the default is 64 MB.
        - name: shm
          emptyDir:
            medium: Memory
            sizeLimit: 8Gi
",
        notes(launch, "# "),
        quote::yaml(image),
        command.join(", "),
    )
}
