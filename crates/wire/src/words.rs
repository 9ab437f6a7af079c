//! How a [`Kind`] is written in JSON: the door and the local socket each have words of their own.

macro_rules! words {
    ($name:ident, $write:ident, $read:ident) => {
        pub(crate) mod $name {
            use godwit_core::Kind;
            use serde::{Deserialize, Deserializer, Serialize, Serializer};
            use std::borrow::Cow;

            pub(crate) fn serialize<S: Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
                kind.$write().serialize(to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<Kind, D::Error> {
                Cow::<'de, str>::deserialize(from).map(|word| Kind::$read(&word))
            }

            pub(crate) mod option {
                use super::*;

                pub(crate) fn serialize<S: Serializer>(
                    kind: &Option<Kind>,
                    to: S,
                ) -> Result<S::Ok, S::Error> {
                    kind.map(Kind::$write).serialize(to)
                }

                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                    from: D,
                ) -> Result<Option<Kind>, D::Error> {
                    let word = Option::<Cow<'de, str>>::deserialize(from)?;
                    Ok(word.map(|word| Kind::$read(&word)))
                }
            }
        }
    };
}

words!(door, door_word, of_door_word);
words!(local, local_word, of_local_word);
