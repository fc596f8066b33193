//! What git knows: the merge base, earlier lock files, and a checkout of another commit.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use vramfit_analysis::check::Lock;
use vramfit_analysis::{Error, Result};
use vramfit_runner::scratch::TempDirectory;

/// Commits of the lock file that are read for its history.
const MAX_COMMITS: usize = 50;

/// A working tree of a repository.
pub(super) struct Repository {
    /// Its top folder.
    pub(super) root: PathBuf,
}

/// A commit that the working tree is compared with.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// How it was named, such as `origin/main`.
    pub(super) name: String,
    /// Its hash.
    pub(super) commit: String,
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, short(&self.commit))
    }
}

/// Returns the first digits of a hash.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..7).unwrap_or(commit)
}

impl Repository {
    /// Returns the repository that a directory is in; `None` where it is in none, or git is not installed.
    pub(super) fn find(directory: &Path) -> Option<Self> {
        let here = Repository { root: directory.to_owned() };
        let top = here.git(&["rev-parse", "--show-toplevel"]).ok()?;
        let root = PathBuf::from(top.trim_end());
        Some(Repository { root })
    }

    /// Returns the merge base with a branch: that of `named`, else that of the branch that CI says a change
    /// is for, else that of the main branch. `None` where there is no other commit to compare with.
    ///
    /// # Errors
    /// `invalid-argument` where the named one does not exist or has no commit in common.
    pub(super) fn base(&self, named: Option<&str>) -> Result<Option<Base>> {
        if let Some(name) = named {
            return self.merge_base(name).map(Some).map_err(|cause| {
                let error = git_error(&format!("there is no merge base with `{name}`"), &cause);
                match self.is_shallow() {
                    true => error.hint("the clone is shallow: fetch all commits (`fetch-depth: 0`, `GIT_DEPTH: 0`)"),
                    false => error.hint("name a branch or a commit of this repository, such as `--base origin/main`"),
                }
            });
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let from_github = variable("GITHUB_BASE_REF").map(|branch| format!("origin/{branch}"));
        let from_gitlab = variable("CI_MERGE_REQUEST_DIFF_BASE_SHA");
        let usual = ["origin/HEAD", "origin/main", "origin/master", "main", "master"];
        let candidates = from_github.into_iter().chain(from_gitlab);
        let mut candidates = candidates.chain(usual.map(str::to_owned));
        let base = candidates.find_map(|name| self.merge_base(&name).ok());
        Ok(base.filter(|base| self.is_changed_since(&base.commit)))
    }

    fn merge_base(&self, name: &str) -> std::result::Result<Base, String> {
        let commit = self
            .git(&["merge-base", "HEAD", name, "--"])
            .or_else(|_| self.git(&["merge-base", "HEAD", name]))?;
        Ok(Base { name: name.to_owned(), commit: commit.trim().to_owned() })
    }

    /// Returns `true` if the working tree is that of another commit, or has changes.
    fn is_changed_since(&self, commit: &str) -> bool {
        let head = self.git(&["rev-parse", "HEAD"]).unwrap_or_default();
        let status = self.git(&["status", "--porcelain", "--untracked-files=normal"]);
        head.trim() != commit || status.is_ok_and(|status| !status.trim().is_empty())
    }

    fn is_shallow(&self) -> bool {
        let answer = self.git(&["rev-parse", "--is-shallow-repository"]);
        answer.is_ok_and(|answer| answer.trim() == "true")
    }

    /// Returns the text of a file in a commit.
    pub(super) fn show(&self, commit: &str, file: &Path) -> Option<String> {
        let relative = file.strip_prefix(&self.root).ok()?;
        self.git(&["show", &format!("{commit}:{}", relative.display())]).ok()
    }

    /// Returns the last commit that changed a file.
    pub(super) fn last_change(&self, file: &Path) -> Option<Base> {
        let relative = file.strip_prefix(&self.root).ok()?.to_string_lossy().into_owned();
        let commit = self.git(&["log", "-1", "--format=%H", "--", &relative]).ok()?;
        let commit = Some(commit.trim().to_owned()).filter(|commit| !commit.is_empty())?;
        Some(Base { name: "the last commit that changed it".to_owned(), commit })
    }

    /// Returns the lock files of the commits that changed it, the oldest first, as far as they can be read.
    pub(super) fn locks(&self, file: &Path) -> Vec<Lock> {
        let Ok(relative) = file.strip_prefix(&self.root) else {
            return Vec::new();
        };
        let (limit, name) = (format!("-{MAX_COMMITS}"), relative.to_string_lossy());
        let commits = self.git(&["log", &limit, "--first-parent", "--format=%H", "--", &name]);
        let commits = commits.unwrap_or_default();
        let texts = commits.lines().rev().filter_map(|commit| self.show(commit, file));
        texts.filter_map(|text| Lock::parse(&text).ok()).collect()
    }

    /// Checks a commit out in a folder of its own.
    ///
    /// # Errors
    /// `invalid-argument` with what git said.
    pub(super) fn checkout(&self, commit: &str) -> Result<Checkout<'_>> {
        let folder = TempDirectory::create()?;
        let path = folder.path().join("checkout");
        let target = path.to_string_lossy().into_owned();
        let added = self.git(&["worktree", "add", "--detach", "--quiet", &target, commit]);
        added.map_err(|cause| {
            git_error(&format!("commit {} cannot be checked out", short(commit)), &cause)
        })?;
        Ok(Checkout { repository: self, path, _folder: folder })
    }

    /// Runs git and returns what it printed, or what it said about its failure.
    fn git(&self, arguments: &[&str]) -> std::result::Result<String, String> {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.root).args(arguments);
        let done = command.output().map_err(|error| error.to_string())?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }
}

/// A commit in a folder of its own, which is removed when it is dropped.
pub(super) struct Checkout<'a> {
    repository: &'a Repository,
    pub(super) path: PathBuf,
    _folder: TempDirectory,
}

impl Checkout<'_> {
    /// Returns where a file of the working tree lies in the checkout.
    pub(super) fn locate(&self, file: &Path) -> Option<PathBuf> {
        let relative = file.strip_prefix(&self.repository.root).ok()?;
        Some(self.path.join(relative))
    }
}

impl Drop for Checkout<'_> {
    fn drop(&mut self) {
        let path = self.path.to_string_lossy().into_owned();
        // What is left of it is removed by git's own housekeeping.
        let _ = self.repository.git(&["worktree", "remove", "--force", &path]);
    }
}

/// The error of a git command that failed.
fn git_error(what: &str, cause: &str) -> Error {
    Error::invalid_argument(what).cause(cause.trim())
}
