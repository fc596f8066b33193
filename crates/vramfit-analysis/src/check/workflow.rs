//! The check as a workflow of a CI service, or as a hook: a complete file, ready to be written.

use std::str::FromStr;

use crate::error::{Error, Result};

/// Where the check is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workflow {
    /// GitHub Actions.
    GitHub,
    /// GitLab CI.
    GitLab,
    /// A hook of `pre-commit`, before a push.
    PreCommit,
}

impl Workflow {
    /// Every workflow, in the order in which they are listed.
    pub const ALL: [Workflow; 3] = [Workflow::GitHub, Workflow::GitLab, Workflow::PreCommit];

    /// Returns its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Workflow::GitHub => "github",
            Workflow::GitLab => "gitlab",
            Workflow::PreCommit => "pre-commit",
        }
    }

    /// Returns the file that it belongs in, relative to the root of the repository.
    pub fn path(self) -> &'static str {
        match self {
            Workflow::GitHub => ".github/workflows/gpu-memory.yml",
            Workflow::GitLab => ".gitlab-ci.yml",
            Workflow::PreCommit => ".pre-commit-config.yaml",
        }
    }

    /// Returns the text of the file.
    pub fn text(self) -> &'static str {
        match self {
            Workflow::GitHub => GITHUB,
            Workflow::GitLab => GITLAB,
            Workflow::PreCommit => PRE_COMMIT,
        }
    }
}

impl FromStr for Workflow {
    type Err = Error;

    /// Parses [`Workflow::name`].
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for any other name.
    fn from_str(text: &str) -> Result<Self> {
        let found = Workflow::ALL.into_iter().find(|workflow| workflow.name() == text);
        found.ok_or_else(|| {
            let names = Workflow::ALL.map(|workflow| format!("`{}`", workflow.name()));
            Error::invalid_argument(format!("unknown workflow `{text}`"))
                .hint(format!("choose one of {}", names.join(", ")))
        })
    }
}

const GITHUB: &str = "\
# Does a change need more GPU memory than was accepted in vramfit.lock? Needs no GPU.
name: GPU memory
on:
  pull_request:
  push:
    branches: [main]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
        with:
          # The merge base is compared with, and earlier versions of vramfit.lock are read.
          fetch-depth: 0
      - uses: actions/setup-python@v5
        with:
          python-version: \"3.12\"
          cache: pip
      # JAX with the GPU compiler, without the CUDA libraries that only a real GPU needs. Pin the
      # versions in requirements.txt: another compiler may need another amount of memory.
      - run: pip install \"vramfit[cuda13] @ ${VRAMFIT:?set it to the URL of the wheel}\" -r requirements.txt
        env:
          VRAMFIT: ${{ vars.VRAMFIT }}
      # Compiled programs and traces to compare with. What did not change is not compiled again.
      - uses: actions/cache@v4
        with:
          path: ~/.cache/vramfit
          key: vramfit-${{ github.sha }}
          restore-keys: vramfit-
      # Annotates the lines that need more, and writes the summary of the job.
      - run: vramfit check --timeout 20m --junit gpu-memory.xml
      - uses: actions/upload-artifact@v4
        if: always()
        with:
          name: gpu-memory
          path: gpu-memory.xml
";

const GITLAB: &str = "\
# Does a change need more GPU memory than was accepted in vramfit.lock? Needs no GPU.
gpu-memory:
  image: python:3.12
  stage: test
  timeout: 30 minutes
  rules:
    - if: $CI_PIPELINE_SOURCE == \"merge_request_event\"
    - if: $CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH
  variables:
    # The merge base is compared with, and earlier versions of vramfit.lock are read.
    GIT_DEPTH: \"0\"
    # GitLab caches only what lies in the project.
    XDG_CACHE_HOME: $CI_PROJECT_DIR/.cache
    PIP_CACHE_DIR: $CI_PROJECT_DIR/.cache/pip
  cache:
    key: vramfit
    paths:
      - .cache/vramfit
      - .cache/pip
  script:
    # JAX with the GPU compiler, without the CUDA libraries that only a real GPU needs. Pin the
    # versions in requirements.txt: another compiler may need another amount of memory.
    - pip install \"vramfit[cuda13] @ ${VRAMFIT:?set it to the URL of the wheel}\" -r requirements.txt
    - vramfit check --timeout 20m --junit gpu-memory.xml --code-quality gpu-memory.json
  artifacts:
    when: always
    reports:
      junit: gpu-memory.xml
      codequality: gpu-memory.json
";

const PRE_COMMIT: &str = "\
# Before a push: does a change need more GPU memory than was accepted in vramfit.lock? Needs no GPU.
repos:
  - repo: local
    hooks:
      - id: vramfit-check
        name: GPU memory (vramfit check)
        # Runs in the environment that has vramfit and JAX, which must be active.
        entry: vramfit check
        language: system
        pass_filenames: false
        types_or: [python, toml]
        stages: [pre-push]
";
