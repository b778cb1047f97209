// CUB's histograms for cub.py, which compiles this where nvcc is: of each row of
// x, one after the other, so that no row's time has a call from Python in it. The
// counts are of 32 bits: with 64 bits CUB is several times slower. Called with
// temp = 0, they give the bytes of memory that they want.
#include <cub/device/device_histogram.cuh>

template <typename T, typename Level>
static int even(void* temp, size_t* bytes, const T* x, int* counts, int bins, Level lo, Level hi, int rows, int n, cudaStream_t stream) {
    int error = 0;
    for (int r = 0; r < rows && !error; r++)
        error = cub::DeviceHistogram::HistogramEven(temp, *bytes, x + (size_t)r * n, counts, bins + 1, lo, hi, n, stream);
    return error;
}

extern "C" int histogram_u8(void* temp, size_t* bytes, const unsigned char* x, int* counts, int bins, int lo, int hi, int rows, int n, cudaStream_t stream) {
    return even(temp, bytes, x, counts, bins, lo, hi, rows, n, stream);
}

extern "C" int histogram_f32(void* temp, size_t* bytes, const float* x, int* counts, int bins, int lo, int hi, int rows, int n, cudaStream_t stream) {
    return even(temp, bytes, x, counts, bins, (float)lo, (float)hi, rows, n, stream);
}
