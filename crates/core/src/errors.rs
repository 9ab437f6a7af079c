//! The errors of a crate as a table.

/// Defines the `Error` of a crate. A row has its message, its variant, the constructor of that, and its
/// [`Kind`](crate::Kind), which `row` returns.
#[macro_export]
macro_rules! errors {
    ($(#[$of_all:meta])* pub enum Error {
        $($(#[$meta:meta])* $name:ident $(($inner:ty))?
            $({ $($(#[$about:meta])* $field:ident: $type:ty),* } => $make:ident)?, $kind:ident;)*
    }) => {
        $(#[$of_all])*
        #[derive(::thiserror::Error)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum Error {
            $($(#[$meta])* $name $(($inner))? $({ $($(#[$about])* $field: $type),* })?,)*
        }

        #[allow(missing_docs)]
        impl Error {
            $($(pub fn $make($($field: impl Into<$type>),*) -> Self {
                Self::$name { $($field: $field.into()),* }
            })?)*

            fn row(&self) -> $crate::Kind {
                match self {
                    $(Self::$name { .. } => $crate::Kind::$kind,)*
                }
            }
        }
    };
}
