//! How the argument structs are declared.

/// Declares `repr(C)` structs whose fields are all visible in this crate.
///
/// `sized` structs begin with their size and a chain of extensions, as every argument struct of
/// the API does; `plain` ones do not.
macro_rules! args {
    () => {};
    (sized struct $name:ident { $($field:ident: $type:ty,)* } $($rest:tt)*) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            pub(crate) struct_size: usize,
            pub(crate) extension_start: *mut std::ffi::c_void,
            $(pub(crate) $field: $type,)*
        }
        args! { $($rest)* }
    };
    (plain struct $name:ident { $($field:ident: $type:ty,)* } $($rest:tt)*) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
        args! { $($rest)* }
    };
}
