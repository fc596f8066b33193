//! The name of a user. Clusters keep theirs in a directory service, so the C library is asked and
//! not `/etc/passwd`.

use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Entries of a directory service can be long; the C library says when this is not enough.
const INITIAL_BUFFER_BYTES: usize = 16 * 1024;

/// Returns the name of a user, or the ID if it has none.
pub(crate) fn user_name(uid: u32) -> String {
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut text = vec![0 as libc::c_char; INITIAL_BUFFER_BYTES];
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: all four pointers outlive the call, and the length is that of `text`.
    let code = unsafe {
        libc::getpwuid_r(uid, entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &mut found)
    };
    if code != 0 || found.is_null() {
        return uid.to_string();
    }
    // SAFETY: `found` points to `entry`, which was filled in; its name lies in `text`.
    let name = unsafe { CStr::from_ptr((*found).pw_name) };
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_users_are_numbers() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(3_999_999_999), "3999999999");
    }
}
