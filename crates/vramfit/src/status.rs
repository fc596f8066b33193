//! How a command ended, and the exit code that says so.

/// How a command that did its work ended; one that could not do it returns a [`vramfit_analysis::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done, or the answer is yes.
    Yes,
    /// The answer is no.
    No,
    /// The answer is not known; the output says why.
    Unknown,
    /// The user's own program failed in its own way; its exit code is passed on.
    Child(u8),
}

impl Status {
    /// Returns the status of an answer; `None` is an unknown one.
    pub(crate) fn from_answer(answer: Option<bool>) -> Self {
        match answer {
            Some(true) => Status::Yes,
            Some(false) => Status::No,
            None => Status::Unknown,
        }
    }

    /// Returns the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Status::Yes => 0,
            Status::No => 1,
            Status::Unknown => 2,
            Status::Child(code) => code,
        }
    }
}
