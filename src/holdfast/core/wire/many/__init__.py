"""Many messages at once, without a Python loop for each.

=========================  ===============================================================
``offsets_batch``          columns of records, and of the messages in them, to columns; a reason for
                           every bad row
``record_batches``         the record batches of a log to columns of records
``columns``                the columns that messages are read into
``columnar``               the reader: all messages advance by one field at a time
``programs``               layouts compiled for the reader; tagged fields
``ragged``                 a position in each message; gathering runs of bytes, UTF-8
``member_messages``        the subscriptions of one group to columns, an owner column to assignments
``subscription_bytes``     the topics of subscriptions, which members mostly share; what of an
                           oversized one is kept
``name_table``             names in bytes to indices; arrays of names
=========================  ===============================================================
"""
