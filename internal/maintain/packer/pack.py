"""Reads texts, each after its dictionary, and writes them compressed. Each has its length before it, of 4 bytes; a dictionary without bytes is none."""
import struct, sys
import zstandard

def read():
    return sys.stdin.buffer.read(struct.unpack("<I", sys.stdin.buffer.read(4))[0])

last = compressor = None
for _ in range(int(sys.argv[1])):
    dictionary, text = read(), read()
    if dictionary != last:
        shared = zstandard.ZstdCompressionDict(dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if dictionary else None
        last, compressor = dictionary, zstandard.ZstdCompressor(level=22, dict_data=shared, write_checksum=True)
    packed = compressor.compress(text)
    sys.stdout.buffer.write(struct.pack("<I", len(packed)) + packed)
